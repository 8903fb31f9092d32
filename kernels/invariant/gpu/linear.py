"""bf16 products on a Hopper GPU, batch-invariant: an element is one chain of MMAs over K in ascending order, whatever the tile."""

import torch

from ...alignment import aligned_rows
from ...cuda import kv_up_projection as kernels
from ...quantize import quantize_blocks
from ...tile.bf16_gemm import K_STEP, by_heads
from ...tile.bf16_gemm import linear as linear  # implementations.py names it here


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    if not kernels.fits_queries(q, cos, wk):
        raise ValueError(
            f"wk has shape {list(wk.shape)}; expected [H, {kernels.ROWS}, {kernels.LATENT}], aligned queries and a multiple of 8 "
            "rotated dims in deterministic mode on a GPU"
        )
    return kernels.absorb_queries(q, cos, sin, wk)


def expand_values(latents: torch.Tensor, wv: torch.Tensor, out: torch.Tensor) -> None:
    if latents.shape[2] % K_STEP:
        raise ValueError(
            f"latents has {latents.shape[2]} dims; expected a multiple of {K_STEP} in deterministic mode on a GPU"
        )
    if out.numel():
        by_heads(aligned_rows(latents), wv, out)


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if len(latents) and kernels.fits_values(latents, wv):
        return kernels.expand_quantize(latents, wv, ue8m0)
    values = torch.empty(*latents.shape[:2], wv.shape[1], dtype=latents.dtype, device=latents.device)
    expand_values(latents, wv, values)
    return quantize_blocks(values.flatten(1), ue8m0)
