"""Sparse prefill on Hopper, over bf16 rows or the paged FP8 cache."""

import torch

from ..alignment import check_aligned
from ..build import load
from ..types import SparseAttention
from .split_plan import BLOCK, MOST_PARTIAL_ROWS, ROWS, attend_to_records, check_widths, parts_at_once


def blocks_of_a_piece(queries: int, heads: int, topk: int, most: int) -> int:
    """Return how many blocks of 64 keys a piece of a query has, if `most` CTAs run at once.

    All pieces are computed at once. The whole query is one piece where the GPU has not two CTAs for each query and its row blocks.
    """
    blocks = -(-topk // BLOCK)
    pieces = most // max(queries * -(-heads // ROWS), 1)
    if pieces < 2:
        return blocks
    size = -(-blocks // pieces)
    return 2 if size == 1 and queries * heads * blocks > MOST_PARTIAL_ROWS else size


def sparse_mla_prefill(given: SparseAttention, divided: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """divided: few queries' keys may be cut into pieces, so bits depend on the number of queries."""
    q, kv, indices, softmax_scale, value_dim, topk_length, attn_sink = given
    tokens, heads, width = q.shape
    check_widths(width, value_dim)
    check_aligned(q=q, kv=kv)
    out = q.new_empty(tokens, heads, value_dim)
    max_logits = q.new_empty(tokens, heads, dtype=torch.float32)
    lse = torch.empty_like(max_logits)
    if kv.dtype == torch.uint8:
        attend_to_records(q, kv, indices[:, 0], topk_length, attn_sink, (out, max_logits, lse), softmax_scale)
    else:
        topk, partial_out, partial_sums = indices.shape[2], None, None
        size = blocks_of_a_piece(tokens, heads, topk, parts_at_once(q.device, 1))
        if divided and topk > size * BLOCK:
            pieces = -(-topk // (size * BLOCK))
            partial_out = q.new_empty(tokens, pieces, heads, value_dim, dtype=torch.float32)
            partial_sums = q.new_empty(2, tokens, pieces, heads, dtype=torch.float32)
        operands = q, kv[:, 0], indices[:, 0], topk_length, attn_sink, out, max_logits, lse, softmax_scale
        load("sparse_prefill").sparse_prefill_rows(*operands, size, partial_out, partial_sums)
    return out, max_logits, lse
