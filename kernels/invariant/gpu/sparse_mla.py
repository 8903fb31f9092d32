"""Attention over selected latents on a Hopper GPU, batch-invariant: a query's sums have one order in every batch.

More than FEW_HEADS heads: the keys of a query are added one block of 64 after the other, in the order of its list, like in prefill.
Few queries would leave the GPU idle that way. For them the scores are divided over CTAs by keys, and the outputs by columns, which
divides no sum (../../cuda/sparse_few_queries/values.cuh). So prompts and decodes take whichever kernel is the fastest.

Fewer heads: keys are cut into pieces by their place in the list. A piece has PIECE_BLOCKS blocks, and a CTA attends to one piece of
one query. The pieces' results are merged in ascending order. A piece without keys has weight 0, and a list of one piece is its own
merge: so it does not matter how wide the lists of a batch are.
"""

from functools import partial

import torch

from ...alignment import check_aligned
from ...build import load
from ...cuda.sparse_mla_decode import FEW_HEADS
from ...cuda.sparse_mla_prefill import sparse_mla_prefill as divided_prefill
from ...cuda.split_plan import PART_FIELDS, attend_to_records, check_widths
from ...types import SparseAttention, SplitPlan

# For up to this many rows (queries times heads), the work is divided over the GPU: rows, columns and keys at a time of a CTA that
# adds values. With more rows, a CTA or a pair for each query is faster.
TILES = {128: (16, 32, 256), 256: (16, 64, 256), 640: (32, 64, 128)}
BLOCK, PIECE_BLOCKS = 64, 8
MOST_PIECES = 16  # kFewSplits of cuda/attention/merge.cuh: this many are merged one after the other
PARTIAL_BYTES = 256 << 20  # of the pieces' results that are held at a time


def pieces_of(topk: int) -> int:
    """Return how many pieces lists of `topk` columns have."""
    pieces = -(-topk // (BLOCK * PIECE_BLOCKS))
    if pieces > MOST_PIECES:
        most = MOST_PIECES * BLOCK * PIECE_BLOCKS
        raise ValueError(f"indices has {topk} columns; expected at most {most} in deterministic mode on a GPU")
    return pieces


def plan_decode(queries: int, heads: int, topk: int, device: torch.device) -> SplitPlan | None:
    """Make the plan for `queries` lists of `topk` columns: part i is a piece of query i // pieces. None if lists are not cut."""
    return None if heads > FEW_HEADS else _plan_pieces(queries, heads, topk, device)


def _plan_pieces(queries: int, heads: int, topk: int, device: torch.device) -> SplitPlan:
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


sparse_mla_prefill = partial(divided_prefill, divided=False)


def sparse_mla_decode(given: SparseAttention, plan: SplitPlan | None) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, width = given.q.shape
    check_widths(width, given.value_dim)
    check_aligned(q=given.q, cache=given.latents)
    queries, records = given.as_prefill(), given.latents.dtype == torch.uint8
    few = batch * new * heads <= max(TILES) and given.indices.shape[2] <= MOST_PIECES * PIECE_BLOCKS * BLOCK
    if records and heads <= FEW_HEADS:
        out, lse = _by_pieces(queries, plan)
    elif records and few:
        out, lse = few_queries(queries)
    else:
        out, _, lse = sparse_mla_prefill(queries)
    return out.view(batch, new, heads, given.value_dim), lse.view(batch, new, heads).transpose(1, 2)


def few_queries(given: SparseAttention) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `out` and `lse` with the bits of sparse_mla_prefill over the FP8 cache with more than FEW_HEADS heads."""
    queries, cache, indices, softmax_scale, value_dim, lengths, attn_sink = given
    (count, heads, _), topk = queries.shape, indices.shape[2]
    columns = -(-topk // BLOCK) * BLOCK
    tile = next((tile for rows, tile in TILES.items() if count * heads <= rows), TILES[max(TILES)])
    out = torch.empty(count, heads, value_dim, dtype=queries.dtype, device=queries.device)
    lse = torch.empty(count, heads, dtype=torch.float32, device=queries.device)
    scores = torch.empty(count, columns // 16, heads, 16, dtype=torch.float32, device=queries.device)
    maxima = torch.empty(count, heads, columns // 16, dtype=torch.float32, device=queries.device)
    load("sparse_few_queries").sparse_few_queries(
        queries, cache, indices[:, 0], lengths, attn_sink, out, lse, softmax_scale, scores, maxima, *tile
    )
    return out, lse


def _by_pieces(given: SparseAttention, plan: SplitPlan | None) -> tuple[torch.Tensor, torch.Tensor]:
    queries, cache, indices, softmax_scale, value_dim, lengths, attn_sink = given
    (tokens, heads, _), topk = queries.shape, indices.shape[2]
    out = torch.empty(tokens, heads, value_dim, dtype=queries.dtype, device=queries.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=queries.device)
    step = max(1, PARTIAL_BYTES // (4 * heads * value_dim * (pieces_of(topk) + 1)))
    for first in range(0, tokens, step):
        rows = slice(first, min(first + step, tokens))
        count = rows.stop - first
        if plan is None or len(plan.parts) != count * pieces_of(topk) or plan.rows != heads:
            plan = _plan_pieces(count, heads, topk, queries.device)
        divided = len(plan.parts) > count
        operands = queries[rows], cache, indices[rows, 0], None if lengths is None else lengths[rows], attn_sink
        results = out[rows], None, lse[rows]
        attend_to_records(*operands, results, softmax_scale, 1, plan if divided else None, in_order=True)
    return out, lse
