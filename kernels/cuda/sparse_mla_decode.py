"""Sparse decode on Hopper over the paged FP8 cache, split over the keys by a plan."""

import torch

from ..alignment import check_aligned
from ..build import load
from ..types import SparseAttention, SplitPlan
from .sparse_mla_prefill import sparse_mla_prefill
from .split_plan import BLOCK, MOST_PARTIAL_ROWS, attend_to_records, check_widths, costs, empty_plan, parts_at_once

FEW_HEADS = 32  # kFewHeads of sparse_decode/launch.cu: up to this many heads a CTA takes 16 heads, beyond it 64
LONG_PART = 8  # blocks; queries in longer parts may be cut anywhere


def parts_of_queries(queries: int, rows: int, topk: int, most: int) -> int:
    """Return into how many parts `queries` lists of `topk` keys are divided; `rows` share a list, and `most` parts run at once.

    All parts have one size, the smallest that lets all run at once, and no part is without keys: CTAs that find nothing to do
    delay the others. Two blocks take less time than one and twice the partial results, unless these are few. The times that were
    measured for each number of queries are in docs/log/attention.md.
    """
    queries, blocks = max(queries, 1), max(-(-topk // BLOCK), 1)
    if most // queries * LONG_PART < blocks:
        return most
    size = -(-blocks // (most // queries))
    if size == 1 and queries * blocks * rows > MOST_PARTIAL_ROWS:
        size = 2
    return queries * -(-blocks // size)


def plan_decode(
    batch: int, s_q: int, heads: int, topk: int, device: torch.device, topk_length: torch.Tensor | None = None
) -> SplitPlan:
    """The split-KV plan for `batch` sequences of `s_q` new tokens with `topk` keys each, or the first topk_length [batch]."""
    queries = batch * s_q
    if heads <= FEW_HEADS:
        # Two such CTAs fit on a multiprocessor. For few queries one CTA is faster: it has all the shared memory, and there are
        # fewer partial results to merge.
        processors = parts_at_once(device, 1)
        parts, cost = parts_at_once(device, -(-heads // 16), 1 if queries <= processors else 2), costs(heads)
    else:  # for more than 64 heads, CTAs work in pairs
        most = parts_at_once(device, 1 if heads <= 64 else 2 * -(-heads // 128))
        parts, cost = parts_of_queries(queries, heads, topk, most), costs(heads, 42, start=1)
    plan = empty_plan(queries, heads, device, parts)
    load("sparse_decode").sparse_decode_plan(plan.parts, plan.split_offset, topk_length, topk, s_q, *cost)
    return plan


def sparse_mla_decode(given: SparseAttention, plan: SplitPlan | None) -> tuple[torch.Tensor, torch.Tensor]:
    q, cache, indices, softmax_scale, value_dim, topk_length, attn_sink = given
    batch, new, heads, width = q.shape
    check_widths(width, value_dim)
    check_aligned(q=q, cache=cache)
    if cache.dtype != torch.uint8:  # a bf16 cache: the prefill kernel, which divides few queries itself
        out, _, lse = sparse_mla_prefill(given.as_prefill())
        return out.view(batch, new, heads, value_dim), lse.view(batch, new, heads).transpose(1, 2)
    if plan is None:
        plan = plan_decode(batch, new, heads, indices.shape[2], q.device, topk_length)
    plan.check(batch * new, heads)
    out = q.new_empty(batch, new, heads, value_dim)
    lse = q.new_empty(batch, new, heads, dtype=torch.float32)
    results = out.flatten(0, 1), None, lse.flatten(0, 1)
    queries, selected = q.flatten(0, 1), indices.flatten(0, 1)
    attend_to_records(queries, cache, selected, topk_length, attn_sink, results, softmax_scale, new, plan)
    return out, lse.transpose(1, 2)
