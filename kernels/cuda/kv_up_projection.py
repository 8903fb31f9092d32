"""kv_b_proj's halves on the GPU: kernels of their own for few tokens, torch's batched product for more."""

import torch

from ..build import load
from ..padding import ROW_BYTES
from ..quantize import quantize_blocks
from ..reference import kv_up_projection as reference
from .fp8_gemm import weights_are_static

FEW = 4  # tokens up to which reading the weights is all that counts: one tile of the kernels
_ROWS, _LATENT, _COLUMNS = (
    128,
    512,
    128,
)  # what the kernels are written for: a head's rows, latent dims, dims of a thread block


def _vectors(*tensors: torch.Tensor) -> bool:
    """Whether every row starts at 16 bytes."""
    return all(
        x.data_ptr() % ROW_BYTES == 0 and all(s * x.element_size() % ROW_BYTES == 0 for s in x.stride()[:-1])
        for x in tensors
    )


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    (tokens, heads, _), (_, nope, latent) = q.shape, wk.shape
    if nope != _ROWS or latent % _COLUMNS or not _vectors(q, wk) or wk.stride(1) != latent:
        return reference.absorb_queries(q, cos, sin, wk)
    out = torch.empty(tokens, heads, latent + 2 * cos.shape[1], dtype=q.dtype, device=q.device)
    if not out.numel():
        return out
    few = tokens <= FEW
    load("kv_up_projection").absorb_queries(q, cos.contiguous(), sin.contiguous(), wk, out, few, weights_are_static(wk))
    if not few:
        torch.bmm(q[..., :nope].transpose(0, 1), wk, out=out[..., :latent].transpose(0, 1))
    return out


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    (tokens, heads, latent), rows = latents.shape, wv.shape[1]
    fits = latent == _LATENT and rows == _ROWS and _vectors(latents, wv) and wv.stride(1) == latent
    if not fits or not 0 < tokens <= FEW:
        values = torch.empty(tokens, heads, rows, dtype=latents.dtype, device=latents.device)
        torch.bmm(latents.transpose(0, 1), wv.transpose(1, 2), out=values.transpose(0, 1))
        return quantize_blocks(values.flatten(1), ue8m0)
    codes = torch.empty(tokens, heads * rows, dtype=torch.float8_e4m3fn, device=latents.device)
    scales = torch.empty(tokens, heads, dtype=torch.float32, device=latents.device)
    load("kv_up_projection").expand_quantize(
        latents, wv, codes.view(torch.uint8), scales, ue8m0, weights_are_static(wv)
    )
    return codes, scales
