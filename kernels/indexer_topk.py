"""Lightning indexer and selection together: the positions of each query's best keys, without the scores.

The same as `select_topk(indexer_logits(...))`, bit for bit. For many queries of long FP8 contexts a GPU needs one pass over the
keys, which stores no scores (kernels/cuda/indexer_topk.py); otherwise LOGITS_BYTES bound the scores that are held at a time.
"""

import torch

from .indexer_logits import check_indexer, indexer_logits
from .registry import Preference, choose_implementation
from .select_topk import select_topk

LOGITS_BYTES = 256 << 20  # upper bound of the fp32 scores [rows, S] that two passes hold at a time


def rows_at_a_time(keys: int, held: int | None = None) -> int:
    """How many queries' scores of so many keys fit in `held` bytes, or in LOGITS_BYTES; at least one."""
    return max(1, (LOGITS_BYTES if held is None else held) // (4 * max(keys, 1)))


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
    candidates ends in -1. ValueError if topk is below one.
    """
    check_indexer(q, k, weights, starts, ends, k_scale)
    if topk < 1:
        raise ValueError(f"topk is {topk}; expected at least 1")
    if q.shape[0] == 0 or k.shape[0] == 0:
        return torch.full((q.shape[0], topk), -1, dtype=torch.int32, device=q.device)
    if takes_one_pass(q, k, topk, backend):
        assert k_scale is not None
        return in_one_pass(q, k, weights, starts, ends, k_scale, topk)
    return in_two_passes(q, k, weights, starts, ends, k_scale, topk, backend)


def in_two_passes(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor | None,
    topk: int,
    backend: str | Preference,
    held: int | None = None,
) -> torch.Tensor:
    """`indexer_topk` by its definition, as many queries at a time as `rows_at_a_time` says."""
    step, parts = rows_at_a_time(k.shape[0], held), []
    for first in range(0, q.shape[0], step):
        rows = slice(first, first + step)
        scores = indexer_logits(q[rows], k, weights[rows], starts[rows], ends[rows], k_scale, backend=backend)
        parts.append(select_topk(scores, starts[rows], ends[rows], topk, backend=backend))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def in_one_pass(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor,
    topk: int,
) -> torch.Tensor:
    """`indexer_topk` on a GPU, for sizes that `is_supported` of kernels/cuda/indexer_topk.py accepts. Waits for the device."""
    from .cuda.indexer_topk import SCRATCH, first_attempt

    result, failed = first_attempt(q, k, weights, starts, ends, k_scale, topk)
    again = failed.nonzero()[:, 0]
    if len(again):
        queries = q.view(torch.uint8)[again].view(q.dtype)  # torch cannot index FP8 tensors
        rest = (weights[again], starts[again], ends[again], k_scale)
        result[again] = in_two_passes(queries, k, *rest, topk, "cuda", SCRATCH)
    return result


def takes_one_pass(q: torch.Tensor, k: torch.Tensor, topk: int, backend: str | Preference) -> bool:
    """Whether `indexer_topk` needs one pass for these queries and keys: FP8 on Hopper, of sizes for which that is faster."""
    if q.dtype != torch.float8_e4m3fn or not q.is_cuda:
        return False
    from .cuda.indexer_topk import multiprocessors, prefers_one_pass

    if not prefers_one_pass(q.shape[0], q.shape[1], k.shape[0], topk, multiprocessors(q.device)):
        return False
    operations = (("indexer_logits", q.dtype, q.shape[2]), ("select_topk", torch.float32, None))
    return all(
        choose_implementation(name, q.device, dtype, backend, width).backend == "cuda"
        for name, dtype, width in operations
    )
