"""Scores, then selection, a few queries at a time."""

from collections.abc import Callable

import torch

from ..indexer_topk import rows_at_a_time
from .indexer_logits import indexer_logits
from .select_topk import select_topk


def in_two_passes(
    logits_of: Callable[..., torch.Tensor],
    select: Callable[..., torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor | None,
    topk: int,
) -> torch.Tensor:
    """`indexer_topk` by an implementation's indexer_logits and select_topk."""
    out = torch.empty(q.shape[0], topk, dtype=torch.int32, device=q.device)
    step = rows_at_a_time(k.shape[0])
    for first in range(0, q.shape[0], step):
        rows = slice(first, first + step)
        logits = logits_of(q[rows], k, weights[rows], starts[rows], ends[rows], k_scale)
        out[rows] = select(logits, starts[rows], ends[rows], topk)
    return out


def indexer_topk(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    k_scale: torch.Tensor | None,
    topk: int,
) -> torch.Tensor:
    return in_two_passes(indexer_logits, select_topk, q, k, weights, starts, ends, k_scale, topk)
