"""Sparse prefill attention in absorbed (MQA) form: each query of a prompt chunk attends to its own selection of latents."""

import torch

from .cache_write import latent_record_bytes
from .checks import FLOATS, check_tensor
from .registry import Preference, choose

PREFILL_TOPK_MULTIPLE = 128  # the compiled kernels process the selected keys in blocks of this size


def check_sparse_options(
    q: torch.Tensor, rows: int, topk_length: torch.Tensor | None, attn_sink: torch.Tensor | None
) -> None:
    """Check the optional arguments that sparse prefill and decode share."""
    if topk_length is not None:
        check_tensor("topk_length", topk_length, (rows,), torch.int32, q.device)
    if attn_sink is not None:
        check_tensor("attn_sink", attn_sink, (q.shape[-2],), torch.float32, q.device)


def pad_topk(indices: torch.Tensor, multiple: int) -> torch.Tensor:
    """`indices` [..., K] padded with -1 to a multiple of `multiple` columns."""
    missing = -indices.shape[-1] % multiple
    return torch.nn.functional.pad(indices, (0, missing), value=-1) if missing else indices


def sparse_mla_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int = 512,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """softmax(q . k * scale) over the selected rows of kv, applied to their first `value_dim` dims.

    q [T, H, D] bf16 or fp32; kv: rows [S, 1, D] of q's dtype, or a uint8 paged latent cache [P, page, 1, record], where an index
    is a slot; indices int32 [T, 1, K], invalid if negative or past the end; topk_length int32 [T]: the number of columns that
    count; attn_sink fp32 [H]: a logit that is added to the denominator of `out` only (plus or minus infinity allowed).
    -> out [T, H, value_dim] in q's dtype, max_logits and lse (natural) fp32 [T, H]; a row without a valid key: 0, -inf, -inf.
    """
    check_tensor("q", q, (None, None, None), FLOATS)
    tokens, heads, width = q.shape
    if kv.dtype == torch.uint8:
        check_tensor(
            "kv", kv, (None, None, 1, latent_record_bytes(value_dim, width - value_dim)), torch.uint8, q.device
        )
    else:
        check_tensor("kv", kv, (None, 1, width), q.dtype, q.device)
    check_tensor("indices", indices, (tokens, 1, None), torch.int32, q.device)
    check_sparse_options(q, tokens, topk_length, attn_sink)
    if tokens == 0 or kv.shape[0] == 0 or indices.shape[2] == 0:
        empty = q.new_full((tokens, heads), float("-inf"), dtype=torch.float32)
        return q.new_zeros(tokens, heads, value_dim), empty, empty.clone()
    implementation = choose("sparse_mla_prefill", q, backend, _fastest(q, kv))
    out, max_logits, lse = implementation(q, kv, indices, softmax_scale, value_dim, topk_length, attn_sink)
    return out, max_logits, lse


def _fastest(q: torch.Tensor, kv: torch.Tensor) -> str:
    """The backend that is the fastest over these keys on an H100 (docs/log/attention-h100.md).

    Over bf16 rows both are equally fast at 8K keys; beyond, CUDA is faster. Over an FP8 cache, tile first converts the slots to
    bf16 rows, which takes about 0.65 ns per slot and saves 4 ns per query and head. CUDA converts keys while it attends; with few
    heads memory bounds it, not that conversion.
    """
    tokens, heads, _ = q.shape
    conversion_pays = heads >= 64 and kv.shape[0] * kv.shape[1] <= 4 * tokens * heads and kv.is_contiguous()
    return "tile" if kv.dtype == torch.uint8 and conversion_pays else "cuda"
