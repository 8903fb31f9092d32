"""The absorbed form of MLA: queries are multiplied into the latent space, and attended latents out into the values of the heads.

The weights are the two halves of kv_b_proj, which are never quantised. Source: DeepSeek-V2 report (arXiv 2405.04434), section 2.1.
"""

import torch

from .checks import FLOATS, check_rope, check_tensor
from .registry import Preference, choose
from .types import Quantized


def absorb_queries(
    q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, wk: torch.Tensor, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """q [T, H, nope + R], the output of the query projection -> [q_nope @ wk | RoPE of q_rope], [T, H, L + R].

    cos, sin fp32 [T, R/2]: RoPE rotates interleaved pairs in fp32. wk [H, nope, L] of q's dtype; sums are fp32 and rounded once.
    """
    check_tensor("q", q, (None, None, None), FLOATS)
    tokens, heads, width = q.shape
    check_rope(cos, sin, tokens, q.device)
    check_tensor("wk", wk, (heads, width - 2 * cos.shape[1], None), q.dtype, q.device)
    return choose("absorb_queries", q, backend)(q, cos, sin, wk)


def rotate_queries(
    q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """Apply RoPE to the last R dims of q [T, H, D] in place, as `absorb_queries` does, and return q. cos, sin fp32 [T, R/2]."""
    check_tensor("q", q, (None, None, None), FLOATS)
    check_rope(cos, sin, len(q), q.device)
    return choose("rotate_queries", q, backend)(q, cos, sin)


def expand_values(
    latents: torch.Tensor, wv: torch.Tensor, out: torch.Tensor, *, backend: str | Preference = "auto"
) -> None:
    """Write the values of the heads, out [T, H, v], from attended latents [T, H, L] and wv [H, v, L]."""
    check_tensor("latents", latents, (None, None, None), FLOATS)
    tokens, heads, width = latents.shape
    check_tensor("wv", wv, (heads, None, width), latents.dtype, latents.device)
    check_tensor("out", out, (tokens, heads, wv.shape[1]), latents.dtype, latents.device)
    choose("expand_values", latents, backend)(latents, wv, out)


def expand_quantize(
    latents: torch.Tensor, wv: torch.Tensor, ue8m0: bool = True, *, backend: str | Preference = "auto"
) -> Quantized:
    """Return all heads' values of a token in one row, rounded to the latents' dtype and quantised for the output projection.

    latents [T, H, L], wv [H, v, L] of one dtype -> values [T, H * v], scales [T, ceil(H * v / 128)].
    """
    check_tensor("latents", latents, (None, None, None), FLOATS)
    _, heads, width = latents.shape
    check_tensor("wv", wv, (heads, None, width), latents.dtype, latents.device)
    return Quantized(*choose("expand_quantize", latents, backend)(latents, wv, ue8m0))
