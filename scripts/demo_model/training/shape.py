"""Dimensions of the model, and the rotary tables."""

import math
from dataclasses import dataclass

import torch

HEADS, NOPE, ROPE, VALUE, LATENT, INDEX = 16, 128, 64, 128, 512, 128  # fixed by the kernels of the released model


@dataclass(frozen=True)
class Shape:
    """Dimensions that the kernels do not fix. In FP8, a model of the defaults with its draft layer fits 24 MiB."""

    vocab: int = 4096
    hidden: int = 256
    layers: int = 3
    dense_layers: int = 1
    mlp: int = 512
    expert: int = 128
    experts: int = 8
    groups: int = 4
    kept_groups: int = 2
    experts_per_token: int = 2
    routed_scaling: float = 1.5
    q_lora: int = 128
    index_heads: int = 16
    index_topk: int = 128
    theta: float = 10000.0
    yarn_factor: float = 8.0
    yarn_original: int = 4096
    positions: int = 32768

    @property
    def softmax_scale(self) -> float:
        return (NOPE + ROPE) ** -0.5 * (0.1 * math.log(self.yarn_factor) + 1) ** 2


def rope_tables(shape: Shape, device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [positions, 32] with YaRN."""
    i = torch.arange(ROPE // 2, dtype=torch.float64)
    inverse = shape.theta ** (-2 * i / ROPE)

    def correction(rotations: float) -> float:
        return ROPE * math.log(shape.yarn_original / (2 * math.pi * rotations)) / (2 * math.log(shape.theta))

    low, high = max(math.floor(correction(32)), 0), min(math.ceil(correction(1)), ROPE - 1)
    ramp = ((i - low) / max(high - low, 0.001)).clamp(0, 1)
    inverse = inverse * (1 - ramp + ramp / shape.yarn_factor)
    angles = torch.arange(shape.positions, dtype=torch.float64)[:, None] * inverse
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate_interleaved(x, cos, sin):
    a, b = x.float()[..., 0::2], x.float()[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


def rotate_halves(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)
