"""The two halves of kv_b_proj on the GPU: own kernels for few tokens, torch's batched matrix product for more."""

import torch

from ..alignment import is_aligned
from ..build import load
from ..quantize import quantize_blocks
from ..reference import kv_up_projection as reference
from .pdl import weights_are_static

# Up to this many tokens, one tile of the kernels, the time is that of reading the weights.
MAX_TOKENS = 4
# The dims that the kernels are written for: rows of wk and of wv per head, latent dims, columns of wk per CTA.
ROWS, LATENT, COLUMNS = 128, 512, 128

FALLS_BACK = {
    "absorb_queries": f"torch.bmm beyond {MAX_TOKENS} tokens; torch for other than {ROWS} dims",
    "expand_quantize": f"torch.bmm beyond {MAX_TOKENS} tokens or for other than {ROWS} of {LATENT} dims",
}


def absorb_queries(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor) -> torch.Tensor:
    (tokens, heads, _), (_, nope, latent) = q.shape, wk.shape
    few = tokens <= MAX_TOKENS  # otherwise the kernel writes the RoPE dims only, eight at a time
    whole = few or cos.shape[1] % 4 == 0
    if nope != ROWS or latent % COLUMNS or not whole or not is_aligned(q, wk) or wk.stride(1) != latent:
        return reference.absorb_queries(q, cos, sin, wk)
    out = torch.empty(tokens, heads, latent + 2 * cos.shape[1], dtype=q.dtype, device=q.device)
    if not out.numel():
        return out
    load("kv_up_projection").absorb_queries(
        q, cos.contiguous(), sin.contiguous(), wk, out, few, weights_are_static(wk), False
    )
    if not few:
        torch.bmm(q[..., :nope].transpose(0, 1), wk, out=out[..., :latent].transpose(0, 1))
    return out


def expand_quantize(latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    (tokens, heads, latent), rows = latents.shape, wv.shape[1]
    fits = latent == LATENT and rows == ROWS and is_aligned(latents, wv) and wv.stride(1) == latent
    if not fits or not 0 < tokens <= MAX_TOKENS:
        values = torch.empty(tokens, heads, rows, dtype=latents.dtype, device=latents.device)
        torch.bmm(latents.transpose(0, 1), wv.transpose(1, 2), out=values.transpose(0, 1))
        return quantize_blocks(values.flatten(1), ue8m0)
    codes = torch.empty(tokens, heads * rows, dtype=torch.float8_e4m3fn, device=latents.device)
    scales = torch.empty(tokens, heads, dtype=torch.float32, device=latents.device)
    load("kv_up_projection").expand_quantize(
        latents, wv, codes.view(torch.uint8), scales, ue8m0, weights_are_static(wv), False
    )
    return codes, scales
