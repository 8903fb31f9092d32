"""Dense decode on Hopper: over paged contexts given by a block table, and the 16-head contract over one-token pages."""

import torch

from ..alignment import check_aligned
from ..build import load
from ..types import SplitPlan
from .split_plan import ROWS, check_widths, costs, empty_plan, partial_results, parts_at_once


def plan_dense(cache_seqlens: torch.Tensor, s_q: int, heads: int) -> SplitPlan:
    """Make the split-KV plan for whole contexts of cache_seqlens int32 [B]."""
    return _plan(cache_seqlens, len(cache_seqlens), s_q * heads, start=3)


def _plan(contexts: torch.Tensor, queries: int, rows: int, start: int) -> SplitPlan:
    """Make the plan for contexts given by their lengths, int32 [queries], or by their bounds, int32 [queries + 1]."""
    device = contexts.device
    plan = empty_plan(queries, rows, device, parts_at_once(device, -(-rows // ROWS)))
    load("dense_decode").dense_decode_plan(plan.parts, plan.split_offset, contexts, *costs(rows, start=start))
    return plan


def dense_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    causal: bool,
    plan: SplitPlan | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, width = q.shape
    check_widths(width, value_dim)
    check_aligned(q=q, cache=cache)
    if plan is None:
        plan = plan_dense(cache_seqlens, new, heads)
    plan.check(batch, new * heads)
    out = q.new_empty(batch, new, heads, value_dim)
    lse = q.new_empty(batch, new, heads, dtype=torch.float32)
    operands = q, cache[:, :, 0], block_table, cache_seqlens, out.flatten(1, 2), lse.flatten(1, 2), softmax_scale
    planned = plan.parts, plan.split_offset, *partial_results(plan, value_dim)
    load("dense_decode").dense_decode(*operands, causal, *planned)
    return out, lse.transpose(1, 2)


def paged_mla_decode_h16(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    sm_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_aligned(q_nope=q_nope, q_pe=q_pe, ckv_cache=ckv_cache, kpe_cache=kpe_cache)
    batch, heads, value_dim = q_nope.shape
    plan = _plan(kv_indptr, batch, heads, start=5)
    out = torch.empty_like(q_nope, memory_format=torch.contiguous_format)
    lse = q_nope.new_empty(batch, heads, dtype=torch.float32)
    operands = q_nope, q_pe, ckv_cache[:, 0], kpe_cache[:, 0], kv_indptr, kv_indices, out, lse, sm_scale
    load("dense_decode").list_decode(*operands, plan.parts, plan.split_offset, *partial_results(plan, value_dim))
    return out, lse
