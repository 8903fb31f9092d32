"""Dense decode on Hopper: over paged contexts given by a block table, and the 16-head contract over one-token pages."""

import torch

from ..alignment import check_aligned
from ..build import load
from ..types import SplitPlan
from .split_plan import check_widths, costs, empty_plan, partial_results, parts_at_once

ROWS_PER_CTA = 64  # kRows of attention/problem.cuh


def plan_dense(cache_seqlens: torch.Tensor, s_q: int, heads: int) -> SplitPlan:
    """Make the split-KV plan for whole contexts of cache_seqlens int32 [B]."""
    rows = s_q * heads
    device = cache_seqlens.device
    plan = empty_plan(cache_seqlens.shape[0], rows, device, parts_at_once(device, -(-rows // ROWS_PER_CTA)))
    load("dense_decode").dense_decode_plan(plan.parts, plan.split_offset, cache_seqlens, *costs(rows, start=3))
    return plan


def plan_lists(kv_indptr: torch.Tensor, heads: int) -> SplitPlan:
    """Make the split-KV plan for contexts given by their bounds, kv_indptr int32 [B + 1]."""
    device = kv_indptr.device
    plan = empty_plan(kv_indptr.shape[0] - 1, heads, device, parts_at_once(device, -(-heads // ROWS_PER_CTA)))
    load("dense_decode").dense_decode_plan(plan.parts, plan.split_offset, kv_indptr, *costs(heads))
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
    plan = plan_lists(kv_indptr, heads)
    out = torch.empty_like(q_nope, memory_format=torch.contiguous_format)
    lse = q_nope.new_empty(batch, heads, dtype=torch.float32)
    operands = q_nope, q_pe, ckv_cache[:, 0], kpe_cache[:, 0], kv_indptr, kv_indices, out, lse, sm_scale
    load("dense_decode").list_decode(*operands, plan.parts, plan.split_offset, *partial_results(plan, value_dim))
    return out, lse
