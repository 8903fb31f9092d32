"""Lightning indexer scores on Hopper, in FP8: ragged prefill, and paged decode over the 132-byte cache."""

import torch

from ..alignment import check_aligned, is_aligned
from ..build import load
from ..types import IndexerOperands, PagedIndexerOperands
from .pdl import inputs_are_static

HEADS = 64  # the most heads of one launch; the kernels pad the heads of a query to 16, 32 or 64
PAGE = 64  # kKeys of lightning_indexer/scores.cuh
LINE = 32  # floats of an L2 line; each row of the result starts on a line


def _logits(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    padded = -(-columns // LINE) * LINE
    return torch.empty(rows, padded, dtype=torch.float32, device=device)[:, :columns]


def indexer_logits(given: IndexerOperands) -> torch.Tensor:
    q, k, weights, starts, ends, k_scale = given
    if q.shape[1] > HEADS:
        first = indexer_logits(given._replace(q=q[:, :HEADS], weights=weights[:, :HEADS]))
        return first.add_(indexer_logits(given._replace(q=q[:, HEADS:], weights=weights[:, HEADS:])))
    check_aligned(q=q, k=k)
    assert k_scale is not None, "implementations.py names FP8 as the only dtype"
    k_scale = k_scale if is_aligned(k_scale) else k_scale.clone()  # a slice of a tensor may start anywhere
    out = _logits(q.shape[0], k.shape[0], q.device)
    load("lightning_indexer").indexer_logits(q, k, weights, starts, ends, k_scale, out)
    return out


def paged_indexer_logits(given: PagedIndexerOperands) -> torch.Tensor:
    q, cache, weights, block_table, lengths, max_context = given
    if cache.shape[1] != PAGE:
        raise ValueError(f"cache has pages of {cache.shape[1]} tokens; expected {PAGE} for backend 'cuda'")
    if q.shape[2] > HEADS:
        first = paged_indexer_logits(given._replace(q=q[:, :, :HEADS], weights=weights[:, :, :HEADS]))
        return first.add_(paged_indexer_logits(given._replace(q=q[:, :, HEADS:], weights=weights[:, :, HEADS:])))
    queries, pages = q.flatten(0, 1), cache.view(cache.shape[0], -1)
    check_aligned(q=queries, cache=pages)
    out = _logits(queries.shape[0], max_context, q.device)
    static = inputs_are_static()
    load("lightning_indexer").paged_indexer_logits(queries, pages, weights, block_table, lengths, out, static)
    return out
