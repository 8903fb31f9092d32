"""Dense attention: multi-head prefill, where DSA selects every token, and absorbed decode over paged contexts."""

import torch

from .checks import FLOATS, check_pages, check_tensor, check_values
from .registry import Preference, choose, choose_implementation
from .types import SplitPlan

_DECODE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def mha_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    mask: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Attend causally with the last T of S tokens. `mask` (bool [T, S], true: attend) restricts it to a part of the causal mask.

    q [T, H, D], k [S, H, D], v [S, H, Dv] of one dtype -> [T, H, Dv] in that dtype. Logits and softmax are fp32.
    """
    check_tensor("q", q, (None, None, None), FLOATS)
    tokens, heads, width = q.shape
    check_tensor("k", k, (None, heads, width), q.dtype, q.device)
    check_tensor("v", v, (k.shape[0], heads, None), q.dtype, q.device)
    if mask is not None:
        check_tensor("mask", mask, (tokens, k.shape[0]), torch.bool, q.device)
    if k.shape[0] < tokens:
        raise ValueError(f"k has {k.shape[0]} tokens; expected at least q's {tokens}")
    if tokens == 0:
        return q.new_empty(0, heads, v.shape[2])
    return choose("mha_prefill", q, backend)(q, k, v, softmax_scale, mask)


def plan_dense(
    cache_seqlens: torch.Tensor, s_q: int, heads: int, *, backend: str | Preference = "auto"
) -> SplitPlan | None:
    """Make dense_mla_decode's split-KV plan for [B, s_q, heads] queries; None where plans are not used. See plan_decode."""
    if choose_implementation("dense_mla_decode", cache_seqlens.device, torch.bfloat16, backend).backend != "cuda":
        return None
    from .cuda.dense_mla import plan_dense as plan_on_cuda

    return plan_on_cuda(cache_seqlens, s_q, heads)


def dense_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    softmax_scale: float,
    value_dim: int = 512,
    causal: bool = True,
    plan: SplitPlan | None = None,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absorbed attention of each sequence's newest s_q tokens over its whole paged context.

    q [B, s_q, H, D]; cache [P, page, 1, D] of q's dtype; block_table int32 [B, pages]; cache_seqlens int32 [B], with the new
    tokens (checks.py: values outside). If `causal`, token i attends to the first cache_seqlens - s_q + i + 1 keys.
    -> out [B, s_q, H, value_dim], lse (natural) fp32 [B, H, s_q]; a row without keys: 0 and -inf.
    """
    check_tensor("q", q, (None, None, None, None), _DECODE_DTYPES)
    batch = q.shape[0]
    check_tensor("cache", cache, (None, None, 1, q.shape[3]), q.dtype, q.device)
    check_tensor("block_table", block_table, (batch, None), torch.int32, q.device)
    check_tensor("cache_seqlens", cache_seqlens, (batch,), torch.int32, q.device)
    check_pages("cache_seqlens", cache_seqlens, block_table, cache.shape[1], cache.shape[0])
    if not q.numel() or not block_table.shape[1] or not cache.shape[0]:
        out = q.new_zeros(*q.shape[:3], value_dim)
        return out, out.new_full((batch, q.shape[2], q.shape[1]), float("-inf"), dtype=torch.float32)
    implementation = choose("dense_mla_decode", q, backend)
    out, lse = implementation(q, cache, block_table, cache_seqlens, softmax_scale, value_dim, causal, plan)
    return out, lse


def paged_mla_decode_h16(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    sm_scale: float,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absorbed decode for 16 heads (one of eight ranks) over a cache of one-token pages, the FlashInfer-style contract.

    q_nope [B, 16, 512], q_pe [B, 16, 64], ckv_cache [P, 1, 512], kpe_cache [P, 1, 64] bf16; kv_indptr int32 [B + 1],
    kv_indices int32: sequence b has the pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]]. Values outside: checks.py.
    -> output [B, 16, 512] bf16, lse fp32 [B, 16] in **base 2**; an empty sequence: 0 and -inf.
    """
    check_tensor("q_nope", q_nope, (None, 16, 512), FLOATS)
    device = q_nope.device
    check_tensor("q_pe", q_pe, (q_nope.shape[0], 16, 64), q_nope.dtype, device)
    check_tensor("ckv_cache", ckv_cache, (None, 1, 512), q_nope.dtype, device)
    check_tensor("kpe_cache", kpe_cache, (ckv_cache.shape[0], 1, 64), q_nope.dtype, device)
    check_tensor("kv_indptr", kv_indptr, (q_nope.shape[0] + 1,), torch.int32, device)
    check_tensor("kv_indices", kv_indices, (None,), torch.int32, device)
    if kv_indptr.is_cpu:
        check_values("kv_indptr", kv_indptr, len(kv_indices), "kv_indices has {} pages", len(kv_indices))
        check_values("kv_indptr.diff()", kv_indptr.diff(), len(kv_indices), "bounds ascend")
        used = kv_indices[int(kv_indptr[0]) : int(kv_indptr[-1])]
        check_values("kv_indices", used, len(ckv_cache) - 1, "the cache has {} pages", len(ckv_cache))
    if not len(q_nope) or not len(kv_indices) or not len(ckv_cache):
        lse = q_nope.new_full(q_nope.shape[:2], float("-inf"), dtype=torch.float32)
        return torch.zeros_like(q_nope, memory_format=torch.contiguous_format), lse
    implementation = choose("paged_mla_decode_h16", q_nope, backend)
    output, lse = implementation(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)
    return output, lse
