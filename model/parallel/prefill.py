"""How ranks share what is not split among them: prompts by their tokens.

Heads are split, but selecting is for whole tokens, and a kernel that attends with a few heads of many tokens gathers as many keys
as one with all heads. So a chunk's tokens are dealt out: each rank selects for its own, gets the other ranks' heads of their
queries in exchange for its heads of all other queries, attends with all heads, and hands the results back. The two products in
fp32, the router's and that of the indexer's head weights, are dealt out in the same way.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from ..metadata import LayerCache, Prefill, Selection
from .collectives import Ranks

if TYPE_CHECKING:
    from ..attention import MultiHeadLatentAttention

_FEW_HEADS = 64  # with so many on a rank its kernels compute as well as with all of them
_LEAST_ROWS = 16  # of a rank, below which exchanging takes longer than it saves
_COMPUTED_ROWS = 512  # the same of an fp32 product


def join_prefill(attention: "MultiHeadLatentAttention", ranks: Ranks, splits_heads: bool) -> None:
    """Let the ranks of a layer share their prompt chunks."""
    indexer = attention.indexer
    select, attend = indexer.select_prefill, attention.attend_best

    def select_share(queries: Any, prefill: Prefill, cache: LayerCache, with_scores: bool = False) -> Selection:
        """As `Indexer.select_prefill`: every rank's part, gathered."""
        own, share = _own_rows(prefill, ranks)
        count = prefill.length - prefill.start
        selection = select(queries, own, cache, with_scores)
        scores = None if selection.scores is None else _gather(ranks, selection.scores, share, count)
        return Selection(_gather(ranks, selection.positions, share, count), scores)

    def attend_share(q: torch.Tensor, queries: Any, prefill: Prefill, cache: LayerCache) -> torch.Tensor:
        """As `MultiHeadLatentAttention.attend_best`: own heads of all tokens, by way of all heads of own tokens."""
        own, share = _own_rows(prefill, ranks)
        count = q.shape[0]
        if attention.heads >= _FEW_HEADS or share < _LEAST_ROWS:
            return attend(q, queries, prefill, cache)
        q = ranks.all_to_all(_padded(q, share * ranks.size).unflatten(0, (ranks.size, share)))
        rows = own.length - own.start
        q = q.transpose(0, 1).flatten(1, 2)[:rows]  # heads in the order of ranks
        latents = attention.attend_selected(q, select(queries, own, cache).positions, own, cache)
        latents = _padded(latents, share).unflatten(1, (ranks.size, -1)).transpose(0, 1)
        return ranks.all_to_all(latents).flatten(0, 1)[:count]

    share_rows(indexer.weights_proj, ranks)
    indexer.select_prefill = select_share  # type: ignore[method-assign]
    if splits_heads:
        attention.attend_best = attend_share  # type: ignore[method-assign]


def share_rows(module: nn.Module, ranks: Ranks) -> None:
    """Let the ranks share a module that each has whole and that treats every row of its input [T, ...] alone: fp32 products."""
    compute = module.forward

    def forward(x: torch.Tensor, *rest: Any) -> Any:
        count = x.shape[0]
        share = -(-count // ranks.size)
        if share < _COMPUTED_ROWS:
            return compute(x, *rest)
        first = min(share * ranks.rank, count - 1)
        own = compute(x[first : first + share], *rest)
        if isinstance(own, tuple):
            return tuple(_gather(ranks, part, share, count) for part in own)
        return _gather(ranks, own, share, count)

    module.forward = forward  # type: ignore[method-assign]


def _gather(ranks: Ranks, part: torch.Tensor, share: int, count: int) -> torch.Tensor:
    """All ranks' rows of [count, ...], of which each has up to `share`."""
    return ranks.all_gather(_padded(part, share)).flatten(0, 1)[:count]


def _padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """x [n, ...] with rows of zeros behind, up to so many; F.pad copies what needs none."""
    return x if x.shape[0] == rows else F.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - x.shape[0]))


def _own_rows(prefill: Prefill, ranks: Ranks) -> tuple[Prefill, int]:
    """The part of a chunk that is this rank's, as a chunk whose context ends earlier; and how many rows a rank has at most."""
    count = prefill.length - prefill.start
    share = -(-count // ranks.size)
    first, last = (min(share * rank, count) for rank in (ranks.rank, ranks.rank + 1))
    # A rank without any of its own repeats the last one.
    begin = min(first, count - 1)
    end = max(last, begin + 1)
    rows = slice(prefill.rows.start + begin, prefill.rows.start + end)
    end += prefill.start
    return Prefill(rows, prefill.start + begin, end, prefill.context_slots[:end]), share
