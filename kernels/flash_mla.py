"""FlashMLA's public functions on top of these kernels: a drop-in replacement for `flash_mla`.

Argument names and conventions are the library's today: natural logsumexp, +inf for a row without keys. Not supported, with a
ValueError that says so: extra_k_cache and its arguments, q of 512 dims, lse_indexer, dense prefill and its backward pass. The
interface of September 2025 is flash_mla_2025_09.
"""

from dataclasses import dataclass
from typing import Any

import torch

from .dense_mla import dense_mla_decode, plan_dense
from .sparse_mla_decode import plan_decode, sparse_mla_decode
from .sparse_mla_prefill import sparse_mla_prefill
from .types import SplitPlan

VALUE_DIM = 512
RECORD_BYTES = 656


@dataclass
class FlashMLASchedMeta:
    """The split-KV plan of a step. It is created empty, filled by the first call, and valid as long as shapes and lengths stay."""

    signature: tuple[Any, ...] | None = None
    plan: SplitPlan | None = None


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """Return an empty schedule for flash_mla_with_kvcache; arguments of older interfaces are ignored."""
    return FlashMLASchedMeta(), None


def fp8_records(k_cache: torch.Tensor) -> torch.Tensor:
    """View the FP8 cache [pages, page, 1, 656] of any one-byte dtype as bytes."""
    if k_cache.dim() != 4 or k_cache.shape[2:] != (1, RECORD_BYTES) or k_cache.element_size() != 1:
        raise ValueError(
            f"k_cache is {k_cache.dtype} {list(k_cache.shape)}; expected a one-byte dtype and [*, *, 1, {RECORD_BYTES}] "
            "with is_fp8_kvcache"
        )
    return k_cache.view(torch.uint8)


def check_dims(q: torch.Tensor, head_dim_v: int) -> None:
    if q.dim() and q.shape[-1] == 512:
        raise ValueError("q has 512 dims; expected 576 (512 latent and 64 RoPE dims)")
    if head_dim_v != VALUE_DIM:
        raise ValueError(f"head_dim_v is {head_dim_v}; expected {VALUE_DIM}")


def check_sparse(causal: bool, is_fp8_kvcache: bool) -> None:
    if causal or not is_fp8_kvcache:
        raise ValueError(
            f"causal is {causal} and is_fp8_kvcache {is_fp8_kvcache}; expected False and True with indices"
        )


def infinite_where_empty(lse: torch.Tensor) -> torch.Tensor:
    return torch.where(lse == float("-inf"), float("inf"), lse)


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode over a paged cache: dense by block_table and cache_seqlens, or sparse over FP8 records by indices (slots).

    q [B, s_q, H, 576]; k_cache [pages, page, 1, 576], or [pages, page, 1, 656] of bytes with is_fp8_kvcache;
    indices [B, s_q, topk].
    -> out [B, s_q, H, 512], lse fp32 [B, H, s_q] (natural; +inf for a row without keys).
    """
    if extra_k_cache is not None or extra_indices_in_kvcache is not None or extra_topk_length is not None:
        raise ValueError(
            "extra_k_cache, extra_indices_in_kvcache or extra_topk_length is given; expected None, they are not supported"
        )
    if not isinstance(tile_scheduler_metadata, FlashMLASchedMeta) or num_splits is not None:
        raise ValueError(
            f"tile_scheduler_metadata is a {type(tile_scheduler_metadata).__name__} and num_splits a {type(num_splits).__name__}; "
            "expected a FlashMLASchedMeta and None, from get_mla_metadata"
        )
    check_dims(q, head_dim_v)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    schedule = tile_scheduler_metadata
    topk = None if indices is None else indices.shape[-1]
    signature = *q.shape[:3], *k_cache.shape[1:3], causal, is_fp8_kvcache, topk
    if schedule.signature not in (None, signature):
        raise ValueError(
            f"tile_scheduler_metadata is for (B, s_q, H, page, heads_k, causal, fp8, topk) = {schedule.signature}; expected "
            f"{signature}: call get_mla_metadata again"
        )
    if indices is None:
        if attn_sink is not None or topk_length is not None or is_fp8_kvcache:
            raise ValueError("indices is None; expected indices with attn_sink, topk_length or is_fp8_kvcache")
        if block_table is None or cache_seqlens is None:
            raise ValueError("block_table or cache_seqlens is None; expected both for dense decode")
        if schedule.signature is None:
            schedule.plan = plan_dense(cache_seqlens, q.shape[1], q.shape[2])
        out, lse = dense_mla_decode(
            q, k_cache, block_table, cache_seqlens, scale, head_dim_v, causal, plan=schedule.plan
        )
    else:
        check_sparse(causal, is_fp8_kvcache)
        if schedule.signature is None:
            batch, new, heads = q.shape[:3]
            schedule.plan = plan_decode(batch, new, heads, indices.shape[-1], q.device, topk_length)
        out, lse = sparse_mla_decode(
            q, fp8_records(k_cache), indices, scale, head_dim_v, topk_length, attn_sink, plan=schedule.plan
        )
    schedule.signature = signature
    return out, infinite_where_empty(lse)


def flash_mla_sparse_fwd(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int = VALUE_DIM,
    attn_sink: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    indexer_topk: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sparse prefill: q [s_q, H, 576] bf16, kv [s_kv, 1, 576] bf16, indices int32 [s_q, 1, topk] (-1 or >= s_kv: invalid).

    -> output [s_q, H, 512], max_logits and lse fp32 [s_q, H] (natural; -inf and +inf for a row without keys).
    """
    if indexer_topk:
        raise ValueError(f"indexer_topk is {indexer_topk}; expected 0, lse_indexer is not supported")
    check_dims(q, d_v)
    out, max_logits, lse = sparse_mla_prefill(q, kv, indices, sm_scale, d_v, topk_length, attn_sink)
    return out, max_logits, infinite_where_empty(lse)
