"""bf16 products on a Hopper GPU, batch-invariant: an element is one chain of MMAs over K in ascending order, whatever the tile."""

import torch

from ...alignment import aligned_rows, is_aligned
from ...build import load
from ...cuda import kv_up_projection as kernels
from ...quantize import quantize_blocks
from ...tile.bf16_gemm import K_STEP, by_heads
from ...tile.bf16_gemm import linear as linear  # registry.py names it here


def _check(name: str, dims: int) -> None:
    if dims % K_STEP:
        raise ValueError(f"{name} has {dims} dims; expected a multiple of {K_STEP} in deterministic mode on a GPU")


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    (tokens, heads, _), (_, nope, latent) = q.shape, wk.shape
    _check("wk", nope)
    if cos.shape[1] % 4 or not is_aligned(q, wk):
        raise ValueError(
            f"cos has {cos.shape[1]} columns; expected a multiple of 4, and aligned queries, in deterministic mode on a GPU"
        )
    if kernels.fits_queries(q, cos, wk):
        return kernels.absorb_queries(q, cos, sin, wk)
    out = torch.empty(tokens, heads, latent + 2 * cos.shape[1], dtype=q.dtype, device=q.device)
    if out.numel():
        # For these dims the kernel writes only the rotated ones.
        load("kv_up_projection").absorb_queries(q, cos.contiguous(), sin.contiguous(), wk, out, False, False)
        by_heads(q[..., :nope], wk, out[..., :latent])
    return out


def expand_values(latents: torch.Tensor, wv: torch.Tensor, out: torch.Tensor) -> None:
    _check("latents", latents.shape[2])
    if out.numel():
        by_heads(aligned_rows(latents), wv.transpose(1, 2), out)


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if len(latents) and kernels.fits_values(latents, wv):
        return kernels.expand_quantize(latents, wv, ue8m0)
    values = torch.empty(*latents.shape[:2], wv.shape[1], dtype=latents.dtype, device=latents.device)
    expand_values(latents, wv, values)
    return quantize_blocks(values.flatten(1), ue8m0)
