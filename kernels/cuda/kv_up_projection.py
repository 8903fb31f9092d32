"""The two halves of kv_b_proj on the GPU: kernels for few tokens and for many. Shapes that they do not support run in torch."""

import torch

from ..alignment import is_aligned
from ..build import load
from ..quantize import quantize_blocks
from ..reference import kv_up_projection as reference
from .pdl import weights_are_static

# The dims that the kernels are written for: rows of wk and of wv per head, and latent dims.
ROWS, LATENT = 128, 512

FALLS_BACK = {
    "absorb_queries": f"torch for other than {ROWS} of {LATENT} dims",
    "rotate_queries": f"torch for other than {ROWS} dims before the rotated ones",
    "expand_quantize": f"torch for other than {ROWS} of {LATENT} dims",
}


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    tokens, heads, _ = q.shape
    if not fits_queries(q, cos, wk):
        return reference.absorb_queries(q, cos, sin, wk)
    out = q.new_empty(tokens, heads, LATENT + 2 * cos.shape[1])
    if out.numel():
        operands = q, cos.contiguous(), sin.contiguous(), wk, out
        load("kv_up_projection").absorb_queries(*operands, True, weights_are_static(wk))
    return out


def rotate_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    nope = q.shape[2] - 2 * cos.shape[1]
    if nope != ROWS or cos.shape[1] % 4 or not q.is_contiguous() or not is_aligned(q):
        return reference.rotate_queries(q, cos, sin)
    if q.numel():  # the kernel writes the rotated dims only; q has the place of the absorbed queries, and its first dims that of wk
        load("kv_up_projection").absorb_queries(q, cos.contiguous(), sin.contiguous(), q[..., :nope], q, False, False)
    return q


def fits_queries(q: torch.Tensor, cos: torch.Tensor, wk: torch.Tensor) -> bool:
    """Check that the kernels support these queries, latent and RoPE dims."""
    _, nope, latent = wk.shape
    fits = (nope, latent) == (ROWS, LATENT) and cos.shape[1] % 4 == 0
    return fits and is_aligned(q, wk) and wk.stride(1) == latent


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    (tokens, heads, _), rows = latents.shape, wv.shape[1]
    if not tokens or not fits_values(latents, wv):
        values = latents.new_empty(tokens, heads, rows)
        torch.bmm(latents.transpose(0, 1), wv.transpose(1, 2), out=values.transpose(0, 1))
        return quantize_blocks(values.flatten(1), ue8m0)
    codes = latents.new_empty(tokens, heads * ROWS, dtype=torch.float8_e4m3fn)
    scales = latents.new_empty(tokens, heads, dtype=torch.float32)
    operands = latents, wv, codes, scales
    load("kv_up_projection").expand_quantize(*operands, ue8m0, weights_are_static(wv))
    return codes, scales


def fits_values(latents: torch.Tensor, wv: torch.Tensor) -> bool:
    """Check that the kernels of expanded and quantised values support these latents."""
    _, rows, latent = wv.shape
    fits = (rows, latent) == (ROWS, LATENT)
    return fits and is_aligned(latents, wv) and wv.stride(1) == latent
