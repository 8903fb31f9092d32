"""Queries multiplied into the latent space, and attended latents multiplied out into values, batch-invariant."""

import torch

from ..reference.quantize import quantize_blocks
from ..reference.rope import rotate_interleaved
from .products import head_products


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    nope, rope = q.split((wk.shape[1], 2 * cos.shape[1]), 2)
    latent = head_products(nope.float(), wk.float()).to(q.dtype)
    return torch.cat((latent, rotate_interleaved(rope, cos, sin)), 2)


def expand_values(latents: torch.Tensor, wv: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(head_products(latents.float(), wv.float().transpose(1, 2)))


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values = latents.new_empty(*latents.shape[:2], wv.shape[1])
    expand_values(latents, wv, values)
    return quantize_blocks(values.flatten(1), ue8m0)
