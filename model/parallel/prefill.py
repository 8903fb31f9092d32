"""Sequence parallelism for prefill: ranks share the tokens of a prompt chunk in work that is not split otherwise.

Selecting tokens needs all heads of the indexer, which ranks do not split, so each rank selects for its part of the chunk.
Attention heads are split, but a sparse kernel gathers as many keys for a few heads of a token as for all of them. Ranks
therefore exchange heads for tokens before attention and back after it, as DeepSpeed-Ulysses does (arXiv 2309.14509). The fp32
projections of the router and of the indexer's head weights are shared by tokens as well.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from ...kernels.routing import group_by_expert
from ...kernels.types import ExpertGroups
from ..attention import MultiHeadLatentAttention
from ..config import ModelConfig
from ..indexer import Fp32Linear, IndexQueries
from ..layers import Compute
from ..metadata import LayerCache, Prefill, Selection
from ..moe import Router
from .collectives import Ranks

_MANY_HEADS = 64  # with at least this many heads on a rank, its kernels are as efficient as with all heads
_LEAST_TOKENS = 16  # per rank; with fewer, the exchange of heads takes longer than it saves
_LEAST_FP32_TOKENS = 512  # per rank; the same for an fp32 projection


class SequenceParallelPrefill:
    """One layer's `PrefillSharing`: every rank selects, and with split heads attends, for its part of a chunk."""

    def __init__(self, attention: MultiHeadLatentAttention, ranks: Ranks, splits_heads: bool) -> None:
        self._attention, self._ranks, self._splits_heads = attention, ranks, splits_heads

    def select(
        self, queries: IndexQueries, prefill: Prefill, cache: LayerCache, with_scores: bool = False
    ) -> Selection:
        """Do as `Indexer.select_prefill` does: each rank selects for its tokens, then all-gather."""
        count = prefill.length - prefill.start
        own, per_rank = _own_tokens(prefill, self._ranks)
        selection = self._attention.indexer.select_prefill(queries, own, cache, with_scores)
        scores = None if selection.scores is None else _gather(self._ranks, selection.scores, per_rank, count)
        return Selection(_gather(self._ranks, selection.positions, per_rank, count), scores)

    def attend(self, q: torch.Tensor, queries: IndexQueries, prefill: Prefill, cache: LayerCache) -> torch.Tensor:
        """Select for q [t, H, L + rope] with this rank's heads, and attend -> latents [t, H, L].

        By Ulysses: all-to-all to all heads of this rank's tokens, attention, all-to-all back.
        """
        attention, ranks, count = self._attention, self._ranks, q.shape[0]
        own, per_rank = _own_tokens(prefill, ranks)
        exchanges = self._splits_heads and attention.heads < _MANY_HEADS and per_rank >= _LEAST_TOKENS
        if not exchanges or attention.form.attends_as_decode(q):  # another number of heads may have another kernel
            return attention.attend_selected(q, self.select(queries, prefill, cache).positions, prefill, cache)
        q = ranks.all_to_all(_padded(q, per_rank * ranks.size).unflatten(0, (ranks.size, per_rank)))
        q = q.transpose(0, 1).flatten(1, 2)[: own.length - own.start]  # heads in the order of ranks
        positions = attention.indexer.select_prefill(queries, own, cache).positions
        latents = attention.attend_selected(q, positions, own, cache)
        latents = _padded(latents, per_rank).unflatten(1, (ranks.size, -1)).transpose(0, 1)
        return ranks.all_to_all(latents).flatten(0, 1)[:count]


class SequenceParallelLinear(Fp32Linear):
    """An fp32 projection, which every rank holds whole and computes for its part of the tokens."""

    def __init__(self, inputs: int, outputs: int, compute: Compute, ranks: Ranks) -> None:
        super().__init__(inputs, outputs, compute)
        self._ranks = ranks

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        compute = super().forward
        (out,) = _by_rank(lambda rows: (compute(rows, scale),), x, self._ranks)
        return out

    def is_shared(self, tokens: int) -> bool:
        return _shares(tokens, self._ranks)


class SequenceParallelRouter(Router):
    """The router, which every rank holds whole and computes for its part of the tokens."""

    def __init__(self, config: ModelConfig, compute: Compute, ranks: Ranks) -> None:
        super().__init__(config, compute)
        self._ranks = ranks

    def forward(self, x: torch.Tensor, count: int, first: int, step: int) -> tuple[torch.Tensor, ExpertGroups]:
        if not _shares(x.shape[0], self._ranks):
            return super().forward(x, count, first, step)
        experts, weights = _by_rank(self.choose, x, self._ranks)
        return weights, group_by_expert(experts, count, first, step, backend=self.compute.backend)


def _by_rank(
    compute: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], x: torch.Tensor, ranks: Ranks
) -> tuple[torch.Tensor, ...]:
    """Call compute(x), which treats every row of x [T, ...] by itself. With many rows, each rank computes its part."""
    count = x.shape[0]
    if not _shares(count, ranks):
        return compute(x)
    per_rank = -(-count // ranks.size)
    first = min(per_rank * ranks.rank, count - 1)
    return tuple(_gather(ranks, part, per_rank, count) for part in compute(x[first : first + per_rank]))


def _shares(tokens: int, ranks: Ranks) -> bool:
    """Decide whether each rank computes fp32 projections only for its part of the tokens."""
    return -(-tokens // ranks.size) >= _LEAST_FP32_TOKENS


def _gather(ranks: Ranks, part: torch.Tensor, per_rank: int, count: int) -> torch.Tensor:
    """Gather all ranks' rows [count, ...] from each rank's, at most `per_rank`."""
    return ranks.all_gather(_padded(part, per_rank)).flatten(0, 1)[:count]


def _padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """Zero-pad x along dim 0 to `rows`. Returns x itself if it fits, because F.pad would copy it."""
    return x if x.shape[0] == rows else F.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - x.shape[0]))


def _own_tokens(prefill: Prefill, ranks: Ranks) -> tuple[Prefill, int]:
    """Return this rank's part of a chunk, as a chunk whose context ends earlier, and the most tokens on any rank."""
    count = prefill.length - prefill.start
    per_rank = -(-count // ranks.size)
    # A rank without tokens of its own repeats the chunk's last token.
    first = min(per_rank * ranks.rank, count - 1)
    stop = max(min(per_rank * (ranks.rank + 1), count), first + 1)
    return prefill.part(first, stop), per_rank
