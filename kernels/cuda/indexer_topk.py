"""Scores and selection on Hopper in one pass over FP8 keys, without storing the scores.

The exact scores of a sample of the keys give each query a threshold, which somewhat more than topk keys reach. One pass over all
keys computes upper bounds of their scores, and stores a bit for each: whether it reaches the threshold. The exact scores of those
keys decide. A query for which the sample was misleading is marked; kernels/indexer_topk.py computes it anew in two passes.
"""

from functools import cache

import torch

from ..build import load
from .indexer_logits import HEADS, LINE, aligned_scale, indexer_logits
from .select_topk import MAX_COLUMNS

SCRATCH = 63 << 20  # bytes that the masks, queries and samples of a part of the queries take, at most
CAPACITY = 8192  # candidates of a query, at most
FITS = CAPACITY // 2  # of so many keys all are candidates
WIDTH = 128  # dims of a head
STRIDE = 64  # one key of so many is in the sample
TILE = 128  # keys of 8 words of a mask, which two queries share
MAX_TOPK = 2048
BLOCK = 6  # queries that a multiprocessor computes at once
LEAST_KEYS = 131072


@cache
def multiprocessors(device: torch.device) -> int:
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def is_supported(heads: int, keys: int, topk: int) -> bool:
    """Whether one pass computes queries of so many heads and keys."""
    return HEADS // 2 < heads <= HEADS and STRIDE <= keys <= MAX_COLUMNS and topk <= MAX_TOPK


def prefers_one_pass(rows: int, heads: int, keys: int, topk: int, processors: int) -> bool:
    """Whether one pass supports these sizes, and is faster than two on so many multiprocessors."""
    return is_supported(heads, keys, topk) and keys >= LEAST_KEYS and rows >= BLOCK * processors


def mask_words(keys: int) -> int:
    """The words of a mask for so many keys."""
    return 8 * -(-keys // TILE)


def bytes_of_row(keys: int) -> int:
    """Scratch of one query: its half of a mask, scores of the sample, and what `indexer_prepare` makes of it."""
    return 4 * mask_words(keys) // 2 + 4 * (keys // STRIDE + LINE) + HEADS * (WIDTH + 4) + 8


def rows_at_a_time(rows: int, keys: int) -> int:
    """How many of these queries are computed at a time: equal parts in whole blocks, which fit in SCRATCH with the sampled keys."""
    most = max(1, (SCRATCH - keys // STRIDE * (WIDTH + 4)) // (bytes_of_row(keys) * BLOCK))
    blocks = -(-rows // BLOCK)
    return BLOCK * -(-blocks // -(-blocks // most))


def first_attempt(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`indexer_topk` for sizes that `is_supported` accepts.

    -> the positions int32 [T, topk], and int32 [T]: not zero where the row means nothing, because the sample was misleading.
    """
    k_scale = aligned_scale(q, k, k_scale)
    library, rows, keys, device = load("lightning_indexer"), q.shape[0], k.shape[0], q.device
    step, samples = rows_at_a_time(rows, keys), keys // STRIDE
    out = torch.empty(rows, topk, dtype=torch.int32, device=device)
    failed, first, last = torch.empty(3, rows, dtype=torch.int32, device=device)
    thresholds = torch.empty(rows, device=device)
    size = min(rows, step)
    mask = torch.empty(-(-size // BLOCK) * (BLOCK // 2), mask_words(keys), dtype=torch.int32, device=device)
    bound_q = torch.empty(size, HEADS, WIDTH, dtype=torch.uint8, device=device)
    bound_weights, scales = torch.empty(size, HEADS, device=device), torch.empty(size, 2, device=device)
    sample = torch.empty(samples, WIDTH, dtype=k.dtype, device=device)
    sample_scale = torch.empty(samples, device=device)
    key_bytes, refused = k.view(torch.uint8), torch.zeros(1, dtype=torch.int32, device=device)
    library.indexer_check_scales(k_scale, refused)
    library.indexer_sample(key_bytes, k_scale, starts, ends, sample.view(torch.uint8), sample_scale, first, last)
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        scores = indexer_logits(q[part], sample, weights[part], first[part], last[part], sample_scale)
        library.indexer_thresholds(
            scores, starts[part], ends[part], first[part], last[part], thresholds[part], keys, topk, FITS
        )
        here = slice(0, len(scores))
        del scores
        bounded = (bound_q[here], bound_weights[here], scales[here])
        library.indexer_prepare(q[part].view(torch.uint8), weights[part], refused, *bounded)
        ranges, found = (starts[part], ends[part], k_scale), (scales[here], thresholds[part], mask)
        library.indexer_candidates(bound_q[here], key_bytes, bound_weights[here], *ranges, *found)
        library.indexer_finish(
            q[part].view(torch.uint8), key_bytes, weights[part], *ranges, *found, out[part], failed[part], CAPACITY
        )
    return out, failed
