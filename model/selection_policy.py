"""Experiments with a request's selection: tokens other than the indexer's choice, and a measurement of dense attention."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

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

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the message to the other ranks; integers may be numpy's."""
        recorded = {
            str(position): {str(layer): chosen.tolist() for layer, chosen in layers.items()}
            for position, layers in self.recorded.items()
        }
        return vars(self) | {"recorded": recorded}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SelectionPolicy":
        """The policy that `to_json` was called on."""
        recorded = {
            int(position): {int(layer): np.array(chosen, dtype=np.int32) for layer, chosen in layers.items()}
            for position, layers in values["recorded"].items()
        }
        spans = {name: tuple(map(tuple, values[name])) for name in ("forbidden", "pinned")}
        return cls(**values | spans | {"recorded": recorded})


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
