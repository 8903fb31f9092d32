"""Rotary position embedding (RoPE) with YaRN, in fp32. Angles depend only on the configuration, never on a buffer's size."""

import math

import torch

from .config import ModelConfig, YarnScaling


def inverse_frequencies(dim: int, theta: float, yarn: YarnScaling | None) -> torch.Tensor:
    """fp32 [R/2]: theta^(-2i/R), with YaRN's slow dimensions divided by its factor (arXiv 2309.00071, section 3.2)."""
    i = torch.arange(dim // 2, dtype=torch.float32)
    frequencies = 1.0 / theta ** (2 * i / dim)
    if yarn is None:
        return frequencies

    def dimension_turning(times: float) -> float:
        """The (fractional) dimension index that rotates `times` times over the original context."""
        original = yarn.original_max_position_embeddings
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension_turning(yarn.beta_fast)), 0)
    high = min(math.ceil(dimension_turning(yarn.beta_slow)), dim - 1)
    ramp = ((i - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies * (1 - ramp) + frequencies / yarn.factor * ramp


class RotaryEmbedding(torch.nn.Module):
    """Computes cos and sin of positions [T] -> fp32 [T, R/2] each."""

    frequencies: torch.Tensor

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        super().__init__()
        # Computed on the CPU, so that every device has the same bits.
        frequencies = inverse_frequencies(config.qk_rope_head_dim, config.rope_theta, config.yarn)
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions.float()[:, None] * self.frequencies
        return angles.cos(), angles.sin()
