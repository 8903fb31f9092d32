"""Experiments with a request's selection: tokens other than the indexer's choice, and a measurement of dense attention."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

import numpy as np

Selector = Literal["indexer", "window", "dense", "wrong_rope"]
SELECTORS: tuple[Selector, ...] = get_args(Selector)
Span = tuple[int, int]  # positions [first, after the last)


@dataclass(frozen=True)
class SelectionPolicy:
    """The selection of one request's queries from position `start` on. Raises ValueError for a field out of range.

    A query at position p chooses the `topk` best of the positions 0 to p: pinned ones first, then those that its selector scores
    highest. A forbidden span is hidden from every query after it; inside the span, its tokens still read each other.
    Queries before `start` are not affected, so their cache entries may be reused.
    """

    start: int = 0
    # indexer: the model's own. window: the newest tokens. dense: every token, whatever `topk`. wrong_rope: the indexer with its
    # RoPE in the other layout (interleaved instead of half-split), a mistake that several implementations made.
    selector: Selector = "indexer"
    topk: int | None = None  # None: the model's index_topk
    forbidden: tuple[Span, ...] = ()
    pinned: tuple[Span, ...] = ()
    # Query position → layer → the positions to attend to (int32, ascending), which take precedence over all of the above.
    recorded: Mapping[int, Mapping[int, np.ndarray]] = field(default_factory=dict)
    measure: bool = False  # also report how much of dense attention's mass falls on what was selected (Selection.mass)

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise ValueError(f"selector is {self.selector!r}; expected one of {', '.join(SELECTORS)}")
        if not _is_whole(self.start) or self.start < 0:
            raise ValueError(f"start is {self.start!r}; expected a position from 0")
        if self.topk is not None and (not _is_whole(self.topk) or self.topk < 1):
            raise ValueError(f"topk is {self.topk!r}; expected at least 1, or None for the model's")
        for name in ("forbidden", "pinned"):
            for span in getattr(self, name):
                if len(span) != 2 or not all(map(_is_whole, span)) or not 0 <= span[0] < span[1]:
                    raise ValueError(f"{name} holds {span!r}; expected spans (first, after the last)")

    def check(self, index_topk: int, prompt_tokens: int) -> None:
        """Raise ValueError if the policy does not suit a model that selects `index_topk` tokens, or the length of the prompt."""
        for name in ("forbidden", "pinned"):
            last = max((stop for _, stop in getattr(self, name)), default=0)
            if last > prompt_tokens:
                raise ValueError(f"{name} ends at position {last}; expected spans of the {prompt_tokens} prompt tokens")
        pinned, topk = sum(stop - start for start, stop in self.pinned), self.topk or index_topk
        if self.selector != "dense" and pinned > topk:
            raise ValueError(f"pinned has {pinned} positions; expected at most topk, which is {topk}")

    def width(self, context: int, index_topk: int) -> int:
        """Return the most positions that a query with `context` tokens selects."""
        return context if self.selector == "dense" else min(context, self.topk or index_topk)

    def encode(self) -> list[int]:
        """Encode as integers, for other ranks."""
        spans = [[len(spans), *chain(*spans)] for spans in (self.forbidden, self.pinned)]
        queries = [
            [position, len(layers), *chain(*([layer, len(chosen), *chosen] for layer, chosen in layers.items()))]
            for position, layers in self.recorded.items()
        ]
        head = [self.start, SELECTORS.index(self.selector), self.topk or 0, int(self.measure)]
        return [*head, *chain(*spans), len(queries), *chain(*queries)]

    @classmethod
    def decode(cls, values: Iterable[int]) -> "SelectionPolicy":
        """Decode what `encode` returned."""
        numbers = iter(values)
        start, selector, topk, measure = _take(numbers, 4)
        forbidden, pinned = _spans(numbers), _spans(numbers)
        recorded: dict[int, dict[int, np.ndarray]] = {}
        for _ in range(next(numbers)):
            position, layers = _take(numbers, 2)
            chosen = recorded[position] = {}
            for _ in range(layers):
                layer, count = _take(numbers, 2)
                chosen[layer] = np.array(_take(numbers, count), dtype=np.int32)
        return cls(start, SELECTORS[selector], topk or None, forbidden, pinned, recorded, bool(measure))


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _take(numbers: Iterator[int], count: int) -> list[int]:
    return [next(numbers) for _ in range(count)]


def _spans(numbers: Iterator[int]) -> tuple[Span, ...]:
    return tuple((next(numbers), next(numbers)) for _ in range(next(numbers)))
