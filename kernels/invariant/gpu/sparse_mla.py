"""Attention over selected latents on a Hopper GPU, batch-invariant: keys are cut into pieces by their place in a query's own list.

A piece has PIECE_BLOCKS blocks of 64 keys, and a CTA (or a pair) attends to one piece of one query, whatever else runs. The pieces'
results are merged in ascending order. A piece without keys has weight 0, and a list of one piece is its own merge: so it does not
matter how wide the lists of a batch are. Prompts take the same way (model/prefill_form.py).
"""

import math

import torch

from ...alignment import check_aligned
from ...build import load
from ...cuda.sparse_mla_prefill import sparse_mla_prefill
from ...cuda.split_plan import PART_FIELDS, check_widths, partial_results
from ...split_plan import SplitPlan

BLOCK, PIECE_BLOCKS = 64, 8
MOST_PIECES = 16  # kFewSplits of cuda/attention/split.cuh: up to so many are merged one after the other
PARTIAL_BYTES = 256 << 20  # of the pieces' results that are held at a time


def pieces_of(topk: int) -> int:
    """How many pieces lists of `topk` columns have."""
    pieces = -(-topk // (BLOCK * PIECE_BLOCKS))
    if pieces > MOST_PIECES:
        most = MOST_PIECES * BLOCK * PIECE_BLOCKS
        raise ValueError(f"indices has {topk} columns; expected at most {most} in deterministic mode on a GPU")
    return pieces


def plan_decode(queries: int, heads: int, topk: int, device: torch.device) -> SplitPlan:
    """The plan for `queries` lists of `topk` columns: part i is a piece of query i // pieces."""
    pieces = pieces_of(topk)
    number = torch.arange(queries * pieces, dtype=torch.int32, device=device)
    parts = torch.zeros(queries * pieces, PART_FIELDS, dtype=torch.int32, device=device)
    query, piece = number // pieces, number % pieces
    parts[:, 0] = query  # first_query, first_block, last_query, end_block, first_split
    parts[:, 1] = piece * PIECE_BLOCKS
    parts[:, 2] = query
    parts[:, 3] = (piece + 1) * PIECE_BLOCKS
    parts[:, 4] = piece
    offsets = torch.arange(0, queries * pieces + 1, pieces, dtype=torch.int32, device=device)
    return SplitPlan(parts, offsets, heads)


def sparse_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    plan: SplitPlan | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, width = q.shape
    check_widths(width, value_dim)
    check_aligned(q=q, cache=cache)
    queries, selected = q.flatten(0, 1), indices.flatten(0, 1)
    lengths = None if topk_length is None else topk_length.repeat_interleave(new)
    if cache.dtype != torch.uint8:  # bf16: a CTA attends to all keys of a query
        out, _, lse = sparse_mla_prefill(
            queries, cache.view(-1, 1, width), selected[:, None], softmax_scale, value_dim, lengths, attn_sink
        )
        return out.view(batch, new, heads, value_dim), lse.view(batch, new, heads).transpose(1, 2)
    out = torch.empty(batch * new, heads, value_dim, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch * new, heads, dtype=torch.float32, device=q.device)
    topk = selected.shape[1]
    step = max(1, PARTIAL_BYTES // (4 * heads * value_dim * (pieces_of(topk) + 1)))
    for first in range(0, batch * new, step):
        rows = slice(first, min(first + step, batch * new))
        count = rows.stop - first
        if plan is None or len(plan.parts) != count * pieces_of(topk) or plan.rows != heads:
            plan = plan_decode(count, heads, topk, q.device)
        divided = len(plan.parts) > count
        load("sparse_decode").sparse_decode(
            queries[rows],
            cache,
            selected[rows],
            None if lengths is None else lengths[rows],
            attn_sink,
            out[rows],
            None,
            lse[rows],
            softmax_scale,
            math.log(2),
            1,
            *((plan.parts, plan.split_offset, *partial_results(plan, value_dim)) if divided else (None,) * 4),
            True,
        )
    return out.view(batch, new, heads, value_dim), lse.view(batch, new, heads).transpose(1, 2)
