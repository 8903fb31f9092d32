"""FlashMLA's interface of September 2025 on top of these kernels: a drop-in replacement for that version.

The metadata are two tensors from get_mla_metadata, made once a step. Sparse prefill returns max_logits and lse in **base 2**
(scores times log2 e), -inf for a row without keys; decode returns the natural lse, +inf for such a row.
"""

import math

import torch

from .dense_mla import dense_mla_decode, plan_dense
from .flash_mla import VALUE_DIM, check_dims, check_sparse, fp8_records, infinite_where_empty
from .sparse_mla_decode import plan_decode, sparse_mla_decode
from .sparse_mla_prefill import sparse_mla_prefill
from .types import SplitPlan


def get_mla_metadata(
    cache_seqlens: torch.Tensor,
    num_q_tokens_per_head_k: int,
    num_heads_k: int,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tile_scheduler_metadata and num_splits, opaque int32 tensors, for cache_seqlens int32 [B].

    num_q_tokens_per_head_k is s_q * H / num_heads_k. With topk (sparse attention), num_heads_q must be given.
    """
    if num_heads_k != 1:
        raise ValueError(f"num_heads_k is {num_heads_k}; expected 1")
    if topk is not None and not num_heads_q:
        raise ValueError("num_heads_q is None; expected the number of query heads with topk")
    if topk is None:
        plan = plan_dense(cache_seqlens, num_q_tokens_per_head_k, 1)
    else:
        heads = num_heads_q or 1
        new = num_q_tokens_per_head_k // heads
        plan = plan_decode(cache_seqlens.shape[0], new, heads, topk, cache_seqlens.device)
    if plan is None:
        empty = torch.empty(0, dtype=torch.int32, device=cache_seqlens.device)
        return empty, empty
    return plan.parts, plan.split_offset


def _plan(tile_scheduler_metadata: torch.Tensor, num_splits: torch.Tensor, rows: int) -> SplitPlan | None:
    if tile_scheduler_metadata.numel() == 0:
        return None
    return SplitPlan(tile_scheduler_metadata, num_splits, rows)


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: torch.Tensor,
    num_splits: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """flash_mla.flash_mla_with_kvcache of September 2025 -> out [B, s_q, H, 512], lse fp32 [B, H, s_q] (natural; +inf: no keys)."""
    check_dims(q, head_dim_v)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    if indices is None:
        if block_table is None or is_fp8_kvcache:
            raise ValueError(
                "block_table is None or is_fp8_kvcache True; expected a block_table and a bf16 or fp16 cache without indices"
            )
        plan = _plan(tile_scheduler_metadata, num_splits, q.shape[1] * q.shape[2])
        out, lse = dense_mla_decode(q, k_cache, block_table, cache_seqlens, scale, head_dim_v, causal, plan=plan)
    else:
        check_sparse(causal, is_fp8_kvcache)
        plan = _plan(tile_scheduler_metadata, num_splits, q.shape[2])
        out, lse = sparse_mla_decode(q, fp8_records(k_cache), indices, scale, head_dim_v, plan=plan)
    return out, infinite_where_empty(lse)


def flash_mla_sparse_fwd(
    q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, sm_scale: float, d_v: int = VALUE_DIM
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sparse prefill. -> output [s_q, H, 512], max_logits and lse fp32 [s_q, H] in **base 2**, -inf for a row without keys."""
    check_dims(q, d_v)
    out, max_logits, lse = sparse_mla_prefill(q, kv, indices, sm_scale, d_v)
    return out, max_logits / math.log(2), lse / math.log(2)
