"""Masks that other threads make while the caller's goes on: those of a whole step in two calls of the grammar engine."""

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_THREADS = 4  # of the grammar engine, which need no interpreter; one more thread, of Python, waits for them


class MaskAhead(NamedTuple):
    """A mask that is being made."""

    step: "Future[np.ndarray]"  # uint32 [M, words], of a whole step
    row: int

    def wait(self) -> np.ndarray | None:
        """uint32 [words]. None if it could not be made."""
        return None if self.step.exception() is not None else self.step.result()[self.row]


class Lender(Protocol):
    """What is needed of a Grammar."""

    ahead: MaskAhead | None

    def lend(self, count: int, token: int) -> "LLMatcher | None":
        """As Grammar.lend."""


class MaskPool:
    """The threads that make masks. They start with the first mask."""

    def __init__(self, vocab: int) -> None:
        self._words = -(-vocab // 32)

    def begin(self, tokens: Iterable[tuple[Lender, int, int]]) -> None:
        """Make the masks that follow: (grammar, the number of tokens in its output, the token after them) each.

        A grammar that has not begun is left out. `Grammar.write_mask` waits for what is made here, and makes what is not.
        """
        lent: list[tuple[Lender, LLMatcher, int]] = []
        for grammar, count, token in tokens:
            matcher = grammar.lend(count, token)
            if matcher is not None:
                lent.append((grammar, matcher, token))
        if lent:
            step = self._thread.submit(self._make, [each[1:] for each in lent])
            for row, (grammar, *_) in enumerate(lent):
                grammar.ahead = MaskAhead(step, row)

    def _make(self, lent: "list[tuple[LLMatcher, int]]") -> np.ndarray:
        masks = np.empty((len(lent), self._words), dtype=np.uint32)
        self._engine.consume_token_par(lent)
        rows = [(matcher, row) for row, (matcher, _) in enumerate(lent)]
        self._engine.unsafe_compute_mask_ptr(rows, masks.ctypes.data, masks.strides[0], len(lent))
        return masks

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "masks")

    @cached_property
    def _engine(self) -> "LLExecutor":
        from llguidance import LLExecutor

        return LLExecutor(min(_THREADS, os.cpu_count() or 1))
