"""Scores and selection on Hopper, in FP8: in one pass over the keys, or in two."""

import torch

from ..alignment import check_aligned, is_aligned
from ..build import load
from ..reference.indexer_topk import in_two_passes
from .indexer_logits import HEADS, indexer_logits
from .select_topk import MAX_COLUMNS, select_topk

MAX_TOPK = 2048  # one pass keeps that many candidates of a query
LEAST_KEYS = 32768  # with fewer keys, two passes are as fast or faster
BLOCK = 6  # queries that one pass computes at once in each multiprocessor


def prefers_one_pass(rows: int, heads: int, keys: int, topk: int, multiprocessors: int) -> bool:
    """Whether one pass supports these sizes, and is faster than two: many long rows, so that every multiprocessor has a block."""
    supported = HEADS // 2 < heads <= HEADS and topk <= MAX_TOPK and keys <= MAX_COLUMNS
    return supported and keys >= LEAST_KEYS and rows >= BLOCK * multiprocessors


def in_one_pass(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    """`indexer_topk` for 33 to 64 heads, topk to MAX_TOPK and 2^20 keys. Scratch: 0.47 MiB for each multiprocessor at topk 2048."""
    check_aligned(q=q, k=k)
    if not is_aligned(k_scale):
        k_scale = k_scale.clone()  # a slice of a tensor may start anywhere
    library, bits = load("lightning_indexer"), q.view(torch.uint8)
    out = torch.empty(q.shape[0], topk, dtype=torch.int32, device=q.device)
    scratch = torch.empty(library.indexer_select_scratch(bits, topk), dtype=torch.uint8, device=q.device)
    library.indexer_select(bits, k.view(torch.uint8), weights, starts, ends, k_scale, out, scratch)
    return out


def indexer_topk(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    multiprocessors = torch.cuda.get_device_properties(q.device).multi_processor_count
    if prefers_one_pass(q.shape[0], q.shape[1], k.shape[0], topk, multiprocessors):
        return in_one_pass(q, k, weights, starts, ends, k_scale, topk)
    return in_two_passes(indexer_logits, select_topk, q, k, weights, starts, ends, k_scale, topk)
