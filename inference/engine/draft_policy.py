"""How many drafts a step makes: a fixed number, or as many as pay by what has been measured."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import median
from typing import Protocol

from .batch import Batch
from .limits import AUTO

MAX_DRAFT_TOKENS = 4

_CERTAIN = 16  # drafts whose fate says enough about all
_DECAY = 0.998  # of what earlier drafts say, for each later one
_TRIAL = 5  # steps with a number of drafts whose cost is to be measured
_ENOUGH = 3  # steps whose time is taken for that of others
_ALWAYS = 3  # so many drafts are tried if most first drafts are right
_STAY = 24  # steps with the best number before the next decision
_REPEAT = 400  # steps until another number is tried again
_WORTH = 0.983  # what keeping the draft layer's entries may leave of the speed, when no drafts are made


class DraftPolicy(Protocol):
    def choose(self, sequences: int, ready: int) -> int | None:
        """How many drafts a step of so many requests makes for each; None leaves the draft layer alone, also in later steps.

        ready: how many of the requests can have drafts. 0: the draft layer's entries are written for later drafts.
        """

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """A step's tokens have arrived: for each request that it sampled for, how many drafts it had, and how many were right."""


def make_policy(count: int, layers: int) -> DraftPolicy | None:
    """For Limits.speculative_tokens, with a model of so many layers. None: no drafts."""
    if count == AUTO:
        return MeasuredDrafts(layers)
    return FixedDrafts(count) if count else None


class FixedDrafts:
    """A DraftPolicy that is told how many."""

    def __init__(self, count: int) -> None:
        self._count = count

    def choose(self, sequences: int, ready: int) -> int | None:
        return self._count

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        pass


class MeasuredDrafts:
    """The number of drafts with the most tokens a second, from how often drafts were right and what steps have cost.

    Steps of about as many requests (a power of two) are compared with each other. First come a few with one draft, then some
    without. Then, if most first drafts were right, up to three drafts are tried although one may not have paid: the draft layer's
    work is there already, and further ones are often cheaper. Beyond that, one more is tried as long as that has paid. Later, other
    numbers are tried again now and then.

    Costs are relative, because other programs and clocks change a machine's speed: the time of steps with one number is compared
    with that of the steps with another number just before them.

    Steps without the draft layer cannot be tried, because the requests in them lose their drafts for good. Their cost is that of
    steps with 0 drafts, less one layer's.
    """

    def __init__(self, layers: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._one_layer = 1 / (layers + 1)
        self._clock = clock
        # By place: drafts that were verified with all before them right, and how many of them were right, decaying.
        self._tried = [0.0] * MAX_DRAFT_TOKENS
        self._right = [0.0] * MAX_DRAFT_TOKENS
        self._sizes: dict[int, _Size] = {}
        # Size, drafts and end of the step before, if it had decodes alone.
        self._latest: tuple[int, int | None, float] | None = None

    def choose(self, sequences: int, ready: int) -> int | None:
        size = self._sizes.setdefault(sequences.bit_length(), _Size())
        if size.left <= 0:
            self._decide(size, ready / sequences)
        size.left -= 1
        return size.count

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        for drafts, right in zip(drafted, accepted, strict=True):
            for place in range(min(drafts, right + 1)):
                self._tried[place] = _DECAY * self._tried[place] + 1
                self._right[place] = _DECAY * self._right[place] + (right > place)
        now, before = self._clock(), self._latest
        number, sequences = len(batch.requests).bit_length(), len(batch.requests)
        self._latest = None
        if batch.decodes < sequences or not all(batch.logit_counts):
            return
        if sum(batch.draft_counts) < (batch.draft_tokens or 0) * sequences / 2:  # it had not the drafts that it makes
            return
        self._latest = number, batch.draft_tokens, now
        if before is not None and before[:2] == self._latest[:2]:
            self._sizes.setdefault(number, _Size()).add(batch.draft_tokens, now - before[2])

    def _decide(self, size: "_Size", ready: float) -> None:
        """Choose the number for the next `size.left` steps."""
        size.compare()
        costs: dict[int | None, float] = dict(size.costs)
        size.left = _TRIAL
        if self._tried[0] < _CERTAIN or 1 not in costs:
            size.count = 1
            return
        if 0 not in costs:
            size.count = 0
            return
        costs.setdefault(None, costs[0] * (1 - self._one_layer))
        speeds = {count: self._tokens(count, ready) / cost for count, cost in costs.items()}
        best = max((count for count in speeds if count), key=lambda count: speeds[count])
        idle = 0 if speeds[0] >= _WORTH * speeds[None] else None
        tried = max(count for count in speeds if count)
        size.steps += _STAY
        pays = best == tried and speeds[best] >= speeds[idle]
        if tried < MAX_DRAFT_TOKENS and (pays or (tried < _ALWAYS and 2 * self._right[0] > self._tried[0])):
            size.count = tried + 1
            return
        if speeds[best] < speeds[idle]:
            size.count, size.left = idle, _STAY
        else:
            size.count, size.left = best, _STAY
        if size.steps > (_REPEAT if size.count else 4 * _REPEAT):
            size.steps = 0
            others = [
                count for count in (0, best - 1, best + 1) if count != size.count and 0 <= count <= MAX_DRAFT_TOKENS
            ]
            size.turn += 1
            size.count, size.left = others[size.turn % len(others)], _TRIAL

    def _tokens(self, count: int | None, ready: float) -> float:
        """Tokens a step and request, with so many drafts for a part of the requests."""
        expected, chance = 1.0, ready
        for place in range(count or 0):
            # Two drafts that were right half of the time stand for what is not known yet.
            chance *= (self._right[place] + 1) / (self._tried[place] + 2)
            expected += chance
        return expected


class _Size:
    """What is known about steps of about as many requests."""

    def __init__(self) -> None:
        self.costs: dict[int | None, float] = {}  # by drafts, relative to each other
        self.count: int | None = 1  # the present choice
        self.left = 0  # for how many steps it stands
        self.steps = 0  # since another number was tried
        self.turn = 0
        # Drafts and seconds of the latest steps, and of those with another number before them.
        self._present: tuple[int | None, deque[float]] = (1, deque(maxlen=_TRIAL))
        self._former: tuple[int | None, float] | None = None

    def add(self, count: int | None, seconds: float) -> None:
        """A step with so many drafts has followed one with as many, and has taken so long."""
        if count != self._present[0]:
            self.compare()
            if len(self._present[1]) >= _ENOUGH:
                self._former = self._present[0], median(self._present[1])
            self._present = count, deque(maxlen=_TRIAL)
        self._present[1].append(seconds)

    def compare(self) -> None:
        """Take the cost of the present steps from what the former ones cost and how long both have taken."""
        count, times = self._present
        if len(times) < _ENOUGH:
            return
        if self._former is None:
            self.costs.setdefault(count, 1.0)
        elif self._former[0] in self.costs:
            former, seconds = self._former
            cost = self.costs[former] * median(times) / seconds
            self.costs[count] = sqrt(cost * self.costs[count]) if count in self.costs else cost
            self._former = None
