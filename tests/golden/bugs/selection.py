"""Selection from right scores, and attention to the selected tokens."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from deepseek_v32.model.attention import MultiHeadLatentAttention
from deepseek_v32.model.metadata import Prefill

from .bug import ALL, HTTP, TRACE, Bug
from .patching import replaced

TOPK = ("model.indexer.select_topk", "model.indexer.select_topk_slots")
PAGE, SINKS = 64, 4
BOTH = frozenset({TRACE, HTTP})


def with_ends(change: Any) -> AbstractContextManager[None]:
    """Top-k over other ends of the contexts int32 [R]."""

    def make(select: Any) -> Any:
        return lambda logits, starts, ends, *rest, **options: select(logits, starts, change(ends), *rest, **options)

    return replaced(TOPK, make)


def one_key_short() -> AbstractContextManager[None]:
    """The length of the context without the query's own token."""
    return with_ends(lambda ends: (ends - 1).clamp_min(1))


def whole_chunk() -> AbstractContextManager[None]:
    """Every query of a prompt's chunk sees the whole chunk."""

    def ends(self: Prefill) -> torch.Tensor:
        count = self.length - self.start
        return torch.full((count,), self.length, dtype=torch.int32, device=self.context_slots.device)

    return replaced("model.metadata.Prefill.ends", lambda _: property(ends))


@contextmanager
def one_page_early() -> Iterator[None]:
    """Positions are mapped to the page before theirs."""

    def shifted(positions: torch.Tensor) -> torch.Tensor:
        return torch.where(positions >= PAGE, positions - PAGE, positions)

    def make_positions(select: Any) -> Any:
        return lambda *arguments, **options: shifted(select(*arguments, **options))

    def make_slots(select: Any) -> Any:
        def slots(logits: Any, starts: Any, ends: Any, k: int, table: torch.Tensor, *rest: Any, **options: Any) -> Any:
            moved = torch.cat((table[:, :1], table[:, :-1]), 1).contiguous()
            return select(logits, starts, ends, k, moved, *rest, **options)

        return slots

    with replaced(TOPK[0], make_positions), replaced(TOPK[1], make_slots):
        yield


def dense() -> AbstractContextManager[None]:
    """Sparse attention is never switched on."""

    def make(forward: Any) -> Any:
        def patched(self: MultiHeadLatentAttention, *arguments: Any) -> Any:
            kept, self.topk = self.topk, 2**31 - 1
            try:
                return forward(self, *arguments)
            finally:
                self.topk = kept

        return patched

    return replaced("model.attention.MultiHeadLatentAttention.forward", make)


def sinks_kept() -> AbstractContextManager[None]:
    """The first tokens are always selected."""

    def make(select: Any) -> Any:
        def kept(logits: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            logits = logits.clone()
            logits[:, :SINKS] = torch.where(logits[:, :SINKS].isneginf(), -torch.inf, torch.inf)
            return select(logits, *arguments, **options)

        return kept

    return replaced(TOPK, make)


def window() -> AbstractContextManager[None]:
    """The newest tokens are selected."""

    def make(select: Any) -> Any:
        def newest(logits: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            positions = torch.arange(logits.shape[1], device=logits.device).float()
            return select(torch.where(logits.isneginf(), logits, positions), *arguments, **options)

        return newest

    return replaced(TOPK, make)


BUGS = (
    Bug("topk-over-wrong-length", BOTH, ALL, "selection", one_key_short),
    Bug("selection-of-the-future", BOTH, ALL, "selection", whole_chunk),
    Bug("selection-off-by-a-page", BOTH, ALL, "selection", one_page_early),
    Bug("dense-attention", BOTH, ALL, "selection", dense),
    Bug("window-attention", BOTH, ALL, "selection", window),
    Bug("sinks-always-selected", BOTH, ALL, "selection", sinks_kept),
)
