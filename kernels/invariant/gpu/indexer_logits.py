"""Lightning indexer scores of bf16 keys on a Hopper GPU, batch-invariant: prompts and decodes use the same kernel.

FP8 keys have CUDA kernels whose sums have one order in prompts and decodes (../../cuda/lightning_indexer/scores.cuh).
"""

import torch
import torch.nn.functional as F

from ...tile.indexer_logits import PAGE
from ...tile.indexer_logits import paged_indexer_logits as paged
from ...types import IndexerOperands, PagedIndexerOperands


def indexer_logits(given: IndexerOperands) -> torch.Tensor:
    """Score the keys as pages that all rows share. Scores before a row's start are computed, too, and never read."""
    q, k, weights, _, ends, _ = given
    count = k.shape[0]
    pages = F.pad(k, (0, 0, 0, -count % PAGE)).view(-1, PAGE, 1, k.shape[1])
    table = torch.arange(len(pages), dtype=torch.int32, device=k.device).expand(q.shape[0], -1)
    return paged(PagedIndexerOperands(q[:, None], pages, weights[:, None], table, ends, count))
