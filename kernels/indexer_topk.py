"""Lightning indexer and selection together: the positions of each query's best keys.

The same as `select_topk(indexer_logits(...))`, bit for bit, with at most LOGITS_BYTES of scores in memory at a time.
"""

import torch

from .indexer_logits import check_indexer, indexer_logits
from .registry import Preference
from .select_topk import select_topk
from .types import IndexerOperands

LOGITS_BYTES = 256 << 20  # upper bound of the fp32 scores [rows, S] in memory


def rows_at_a_time(keys: int) -> int:
    """Return for how many queries the scores of that many keys fit in LOGITS_BYTES; at least one."""
    return max(1, LOGITS_BYTES // (4 * max(keys, 1)))


def indexer_topk(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor | None,
    topk: int,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Return the positions of each query's topk best keys in [starts[t], ends[t]), relative to starts[t] -> int32 [T, topk].

    Takes the arguments of `indexer_logits`. As in `select_topk`, the lowest of equal scores' positions is selected, and a row
    with fewer candidates ends in -1. ValueError if topk is below one.
    """
    check_indexer(IndexerOperands(q, k, weights, starts, ends, k_scale))
    if topk < 1:
        raise ValueError(f"topk is {topk}; expected at least 1")
    if q.shape[0] == 0 or k.shape[0] == 0:
        return torch.full((q.shape[0], topk), -1, dtype=torch.int32, device=q.device)
    step, parts = rows_at_a_time(k.shape[0]), []
    for first in range(0, q.shape[0], step):
        rows = slice(first, first + step)
        scores = indexer_logits(q[rows], k, weights[rows], starts[rows], ends[rows], k_scale, backend=backend)
        parts.append(select_topk(scores, starts[rows], ends[rows], topk, backend=backend))
    return parts[0] if len(parts) == 1 else torch.cat(parts)
