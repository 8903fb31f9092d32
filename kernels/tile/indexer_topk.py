"""Scores, then selection, a few queries at a time, in TileLang."""

import torch

from ..reference.indexer_topk import in_two_passes
from .indexer_logits import indexer_logits
from .select_topk import select_topk


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
