"""What steps with and without drafts have taken: compared with each other by size, and put into the budget."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from statistics import median
from typing import NamedTuple

from ...params import Request
from ..limits import MAX_DRAFT_TOKENS
from ..scheduling.batch import Batch
from .draft_budget import DraftBudget
from .draft_costs import StepCosts

_COMPARED = 8  # steps without the draft layer
_SKIPPED = 3  # first ones that say nothing: they verify drafts, or are not started ahead
_MOST_WAITING = 64  # steps without drafts
_REMEMBERED = 5  # comparisons of steps without the draft layer with others


def size_of(sequences: int) -> int:
    """Of a step, as graphs have it: 1, 2, 3 to 4, 5 to 8, … requests."""
    return (sequences - 1).bit_length()


class MeasuredSize:
    """The costs of steps of about as many requests."""

    def __init__(self, one_layer: float) -> None:
        """one_layer: the share of the draft layer in a step that makes no drafts."""
        self.costs = StepCosts(MAX_DRAFT_TOKENS)
        # Of steps without the draft layer: (drafts of the steps before, logarithm of the costs' ratio).
        self.plain: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self.compare_plain = False  # the next steps without the draft layer, with those before them
        self._one_layer = one_layer

    @property
    def plain_cost(self) -> float | None:
        """The logarithm of a plain step's cost, relative to those of `costs`; None if it is not known."""
        costs = self.costs
        found = [float(costs.logs[drafts]) + ratio for drafts, ratio in self.plain if drafts in costs.known]
        if found:
            return median(found)
        return float(costs.logs[0]) + log(1 - self._one_layer) if 0 in costs.known else None

    def cost_over_plain(self, drafts: int) -> float | None:
        """Of a step with so many drafts; None if it is not known."""
        plain = self.plain_cost
        return None if plain is None or drafts not in self.costs.known else exp(float(self.costs.logs[drafts]) - plain)


class MeasuredSteps:
    """Takes the time of each step that has decodes alone.

    Steps without drafts wait in a list until a choice depends on them: between steps that are started ahead the host's time counts,
    and what it does rarely takes several times as long as in a row.
    """

    def __init__(self, clock: Callable[[], float], layers: int, ahead: bool) -> None:
        """As MeasuredDrafts."""
        self.budget = DraftBudget(layers)
        self._clock, self._one_layer, self._ahead = clock, 1 / (layers + 1), ahead
        self._sizes: dict[int, MeasuredSize] = {}
        self._waiting: list[tuple[Batch, Sequence[int], float]] = []  # as observed, with the time at which they ended
        # Steps without the draft layer that are being compared with those before them.
        self._plain: _PlainSteps | None = None
        # Size, drafts and end of the step before, if it had decodes alone and the drafts that it made.
        self._latest: tuple[int, int | None, float] | None = None
        self._before: _Step | None = None

    def size(self, number: int) -> MeasuredSize:
        if number not in self._sizes:
            self._sizes[number] = MeasuredSize(self._one_layer)
        return self._sizes[number]

    def observe(self, batch: Batch, accepted: Sequence[int]) -> None:
        """As DraftPolicy.observe."""
        self._waiting.append((batch, accepted, self._clock()))
        if batch.draft_tokens is not None or batch.draft_counts or len(self._waiting) >= _MOST_WAITING:
            self.catch_up()

    def catch_up(self) -> None:
        """Take into account the steps that wait."""
        waiting, self._waiting = self._waiting, []
        for batch, accepted, now in waiting:
            self._take(batch, accepted, now)

    def _take(self, batch: Batch, accepted: Sequence[int], now: float) -> None:
        """A step that has ended at this time."""
        sequences = len(batch.requests)
        number, decodes = size_of(sequences), batch.decodes == sequences and all(batch.logit_counts)
        self._account(batch, number, now, 1 + sum(accepted) / sequences if decodes else 0)
        if batch.draft_tokens is None:
            self._observe_plain(number, now if decodes else None)
            return
        before, self._latest, self._plain = self._latest, None, None
        if not decodes:
            return
        if sum(batch.draft_counts) < batch.draft_tokens * sequences / 2:  # it had not the drafts that it makes
            return
        self._latest = number, batch.draft_tokens, now
        # Another thread may have taken the step before; its time may be any.
        if before is not None and before[:2] == self._latest[:2] and now > before[2]:
            self.size(number).costs.add(batch.draft_tokens, now - before[2])

    def know_plain(self, number: int) -> None:
        """Tell the budget what a plain step takes at present, as far as steps with drafts show it."""
        size = self.size(number)
        drafts, times = size.costs.latest()
        if drafts is not None and (size.plain or not self._ahead) and (cost := size.cost_over_plain(drafts)):
            self.budget.know(number, median(times) / cost)

    def _account(self, batch: Batch, number: int, now: float, steps: float) -> None:
        """Put a step into the budget. steps: of plain decoding, that would have given its tokens; 0: not only decodes."""
        before = self._before
        plain = number if batch.draft_tokens is None and not batch.draft_counts and steps else None
        self._before = _Step(batch.requests, now, plain)
        if before is None or not steps or now <= before.end:
            return
        # Without a request in common, the engine may have waited in between.
        if before.requests != batch.requests and set(before.requests).isdisjoint(batch.requests):
            return
        if plain is None:
            self.budget.drafted_step(number, batch.most_drafts, now - before.end, steps)
        else:
            self.budget.plain_step(number, now - before.end, before.plain == number)

    def _observe_plain(self, number: int, now: float | None) -> None:
        """Compare the first steps without the draft layer with the latest that had it. now: None for a step with prompts."""
        self._latest = None
        plain, size = self._plain, self.size(number)
        if plain is None:
            if not size.compare_plain:
                return
            size.compare_plain = False
            drafts, times = size.costs.latest()
            if drafts is None:
                return
            size.costs.compare()
            plain = self._plain = _PlainSteps(number, drafts, median(times))
        if plain.number != number:
            self._plain = None
        elif now is not None:
            plain.ends.append(now)
            if len(plain.ends) > _SKIPPED + _COMPARED:
                taken = [end - start for start, end in pairwise(plain.ends[_SKIPPED:])]
                size.plain.append((plain.drafts, log(median(taken) / plain.seconds)))
                self._plain = None
        else:
            plain.ends.clear()


class _Step(NamedTuple):
    """The step before."""

    requests: tuple[Request, ...]
    end: float
    plain: int | None  # its size, if it was a step of decodes without the draft layer


@dataclass
class _PlainSteps:
    """Steps without the draft layer behind others that had it."""

    number: int  # of their size
    drafts: int  # of the steps before
    seconds: float  # that one of those took
    ends: list[float] = field(default_factory=list)
