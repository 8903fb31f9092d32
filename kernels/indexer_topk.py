"""Lightning indexer and selection together: the positions of each query's best keys, without the scores.

The same as `select_topk(indexer_logits(...))`, bit for bit; the CUDA implementation computes it in one pass over the keys where
that is faster, and no implementation holds more than LOGITS_BYTES of scores at a time.
"""

import torch

from .indexer_logits import check_indexer
from .registry import Preference, choose

LOGITS_BYTES = 256 << 20  # upper bound of the fp32 scores [rows, S] that two passes hold at a time


def rows_at_a_time(keys: int) -> int:
    """How many queries' scores of so many keys fit in LOGITS_BYTES; at least one."""
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
    """The positions of the topk best keys of each query among [starts[t], ends[t]), relative to starts[t] -> int32 [T, topk].

    Arguments as of `indexer_logits`. As by `select_topk`, of equal scores the lowest position is selected, and a row with fewer
    candidates ends in -1.
    """
    check_indexer(q, k, weights, starts, ends, k_scale)
    if topk < 1:
        raise ValueError(f"topk is {topk}; expected at least 1")
    if q.shape[0] == 0 or k.shape[0] == 0:
        return torch.full((q.shape[0], topk), -1, dtype=torch.int32, device=q.device)
    result: torch.Tensor = choose("indexer_topk", q, backend)(q, k, weights, starts, ends, k_scale, topk)
    return result
