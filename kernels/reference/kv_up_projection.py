"""Queries multiplied into the latent space, and attended latents multiplied out into values, in plain PyTorch."""

import torch

from .quantize import quantize_blocks
from .rope import rotate_interleaved
from .wide import widened


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    nope, rope = q.split((wk.shape[1], 2 * cos.shape[1]), 2)
    latent = torch.bmm(*widened(nope.transpose(0, 1), wk)).transpose(0, 1)
    return torch.cat((latent.to(q.dtype), rotate_interleaved(rope, cos, sin)), 2)


def rotate_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rope = q[..., q.shape[2] - 2 * cos.shape[1] :]
    rope.copy_(rotate_interleaved(rope, cos, sin))
    return q


def expand_values(latents: torch.Tensor, wv: torch.Tensor, out: torch.Tensor) -> None:
    rows, weights = widened(latents.transpose(0, 1), wv.transpose(1, 2))
    if rows.dtype == out.dtype:
        torch.bmm(rows, weights, out=out.transpose(0, 1))
    else:
        out.copy_(torch.bmm(rows, weights).transpose(0, 1))


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.bmm(latents.transpose(0, 1), wv.transpose(1, 2)).transpose(0, 1)
    return quantize_blocks(values.flatten(1), ue8m0)
