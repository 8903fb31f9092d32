"""Scores and selection on Hopper in one pass over FP8 keys, without storing the scores.

The exact scores of a sample of the keys give each query a threshold, which somewhat more than topk keys reach. One pass over all
keys computes bounds of their scores, and lists the keys whose upper bound reaches the threshold. Of those, most are certainly
selected, or certainly not; the others' exact scores decide. A query for which the sample was misleading is computed anew in two
passes, so that the result is that of two passes in every case.
"""

from functools import cache

import torch

from ..alignment import check_aligned, is_aligned
from ..build import load
from .indexer_logits import HEADS, indexer_logits
from .select_topk import MAX_COLUMNS, select_topk

SCRATCH = 63 << 20  # bytes that the lists, queries and samples' scores of a part of the queries take, at most
CAPACITY = 6656  # entries of a query's list of candidates, of 8 bytes
FITS = CAPACITY // 2  # of so many keys all are candidates
WIDTH = 128  # dims of a head
STRIDE = 64  # one key of so many is in the sample
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


def bytes_of_row(keys: int) -> int:
    """Scratch of one query: candidates, scores of the sample, and what `indexer_prepare` makes of it."""
    return 8 * CAPACITY + 4 * (keys // STRIDE) + HEADS * (WIDTH + 4) + 8


def rows_at_a_time(rows: int, keys: int) -> int:
    """How many of these queries are computed at a time: equal parts in whole blocks, whose lists and samples fit in SCRATCH."""
    most = max(1, SCRATCH // (bytes_of_row(keys) * BLOCK))
    blocks = -(-rows // BLOCK)
    return BLOCK * -(-blocks // -(-blocks // most))


def in_one_pass(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    """`indexer_topk` for sizes that `is_supported` accepts. Waits for the device."""
    check_aligned(q=q, k=k)
    if not is_aligned(k_scale):
        k_scale = k_scale.clone()  # a slice of a tensor may start anywhere
    out, failed = first_attempt(q, k, weights, starts, ends, k_scale, topk)
    again = failed.nonzero()[:, 0]
    step = max(1, SCRATCH // (4 * k.shape[0]))
    for begin in range(0, len(again), step):
        rows = again[begin : begin + step]
        queries = q.view(torch.uint8)[rows].view(q.dtype)
        scores = indexer_logits(queries, k, weights[rows], starts[rows], ends[rows], k_scale)
        out[rows] = select_topk(scores, starts[rows], ends[rows], topk)
    return out


def first_attempt(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions int32 [T, topk], and int32 [T]: not zero where the row means nothing, because the sample was misleading."""
    library, rows, keys, device = load("lightning_indexer"), q.shape[0], k.shape[0], q.device
    step, samples = rows_at_a_time(rows, keys), keys // STRIDE
    out = torch.empty(rows, topk, dtype=torch.int32, device=device)
    failed, reserved, first, last = torch.empty(4, rows, dtype=torch.int32, device=device)
    thresholds = torch.empty(rows, device=device)
    size = min(rows, step)
    entries = torch.empty(size, CAPACITY, 2, dtype=torch.int32, device=device)
    bound_q = torch.empty(size, HEADS, WIDTH, dtype=torch.uint8, device=device)
    bound_weights, scales = torch.empty(size, HEADS, device=device), torch.empty(size, 2, device=device)
    sample = torch.empty(samples, WIDTH, dtype=k.dtype, device=device)
    sample_scale = torch.empty(samples, device=device)
    key_bytes, longest_key = k.view(torch.uint8), torch.zeros(1, device=device)
    library.indexer_longest_key(key_bytes, longest_key)
    library.indexer_sample(
        key_bytes, k_scale, starts, ends, sample.view(torch.uint8), sample_scale, first, last, reserved
    )
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        scores = indexer_logits(q[part], sample, weights[part], first[part], last[part], sample_scale)
        library.indexer_thresholds(
            scores, starts[part], ends[part], first[part], last[part], thresholds[part], keys, topk, FITS
        )
        here = slice(0, len(scores))
        del scores
        bounded = (bound_q[here], bound_weights[here], scales[here])
        library.indexer_prepare(q[part].view(torch.uint8), weights[part], longest_key, *bounded)
        ranges, found = (starts[part], ends[part], k_scale), (thresholds[part], entries[here], reserved[part])
        library.indexer_candidates(bound_q[here], key_bytes, bound_weights[here], *ranges, scales[here], *found)
        library.indexer_finish(
            q[part].view(torch.uint8), key_bytes, weights[part], *ranges, *found, out[part], failed[part]
        )
    return out, failed
