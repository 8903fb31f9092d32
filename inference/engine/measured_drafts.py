"""As many drafts as pay, by what has been measured: a DraftPolicy."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from statistics import median
from typing import NamedTuple

import numpy as np

from ..params import Request
from .batch import Batch
from .draft_budget import DraftBudget, assumed_cost
from .draft_costs import StepCosts
from .limits import MAX_DRAFT_TOKENS

GPU_PROMPT = 128  # prompt tokens in the time of a decode step, about: 1.5 µs beside 0.23 ms on an H100
_CERTAIN = 13  # drafts whose fate says enough about all; half of them, as many as a trial verifies, if it is clear
_DECAY = 0.998  # of what earlier drafts say, for each later one
_TRIAL = 8  # steps with a number of drafts whose cost is to be measured
_ALWAYS = 3  # so many drafts are tried if most first drafts are right
_BRIEF = 5  # such steps that make no drafts, when their cost is not known at all
_CAPTURE = 160  # plain steps in the time that a number's graphs take: 4 to 8 ms for each of four, beside 0.2 ms for the demo
_STAY = 24  # steps with the chosen number before the next decision
_REPEAT = 400  # steps until another number is tried again that is not among the best
_CLOSE = 0.03  # the most that fewer drafts may seem to be slower, relative, and still be preferred
_SETTLED = 0.01  # a comparison so certain is not repeated
_DOUBT = 0.35  # how much faster no drafts must be, by one comparison, for it to be enough
_UNSURE = 0.1  # after one so uncertain, the next decision comes soon
_SKIPPED = 3  # first steps without the draft layer that say nothing: they verify drafts, or are not started ahead
_REMEMBERED = 5  # comparisons of steps without the draft layer with others
_PLAIN_TRIALS = 3  # answers that go without drafts so that such a comparison may come about
_GAIN = 0.4  # relative, from which on drafts are believed to pay without it
_WORTH = 0.983  # what keeping the draft layer's entries may leave of the speed, when no drafts are made


class MeasuredDrafts:
    """The number of drafts with the most tokens a second, from how often drafts were right and what steps have cost.

    Steps of about as many requests (a power of two) are compared with each other. First come a few with one draft, then some
    without. Then, if most first drafts were right, up to three drafts are tried although one may not have paid: the draft layer's
    work is there already, and further ones are often cheaper. Beyond that, one more is tried as long as that has paid.

    Both measurements are uncertain. Of numbers whose speeds differ by less than the difference's standard error, the smallest is
    chosen, and the others are tried again in turns until they are told apart. Those that are clearly worse are tried now and then.

    Steps without the draft layer cost their requests the drafts for good. So their cost is taken to be that of steps with 0 drafts,
    less one layer's, until some have been seen. Where steps may be started ahead of others' tokens, which only those without the
    layer are, they can be much cheaper than that: then they are tried, in one answer, before a small gain is believed.

    A prompt passes through the draft layer before it is known how long its answer is. One that is so long that even halving the
    time of the longest answer would not make up for that does not.
    """

    def __init__(
        self,
        layers: int,
        clock: Callable[[], float] = time.perf_counter,
        prompt_tokens: int = GPU_PROMPT,
        ahead: bool = False,
        must_capture: Callable[[int, int], bool] = lambda sequences, drafts: False,
    ) -> None:
        """prompt_tokens: that are computed in the time of a decode step. ahead: whether steps may be started ahead.

        must_capture: as in ModelRunner.
        """
        self._must_capture = must_capture
        self._ahead = ahead
        self._one_layer = 1 / (layers + 1)
        self._longest_prompt = layers * prompt_tokens / 2  # for each token of the answer
        self._clock = clock
        # By place: drafts that were verified with all before them right, and how many of them were right, decaying.
        self._tried = [0.0] * MAX_DRAFT_TOKENS
        self._right = [0.0] * MAX_DRAFT_TOKENS
        self._sizes: dict[int, _Size] = {}
        # Steps without the draft layer that are being compared with those before them.
        self._plain: _PlainSteps | None = None
        # Size, drafts and end of the step before, if it had decodes alone.
        self._latest: tuple[int, int | None, float] | None = None
        self._budget = DraftBudget()
        self._before: _Step | None = None

    def choose(self, sequences: int, ready: int) -> int | None:
        number = _size_of(sequences)
        size = self._sizes.setdefault(number, _Size())
        begins = size.left <= 0
        if begins:
            self._decide(size, ready / sequences)
            size.lost = self._loss(number, ready / sequences)
        if not self._affords(number, sequences, begins):
            size.count, size.left, size.trial = None, 1, False
        size.left -= 1
        size.compare_plain = size.count is None
        return size.count

    def _loss(self, number: int, ready: float) -> float:
        """How many plain steps each step with the size's present number is behind plain decoding, with drafts for a part `ready`."""
        size = self._sizes[number]
        count, costs, plain = size.count, size.costs, self._plain_cost(size)
        if count is None:
            return 0.0
        cost, tokens, chance = assumed_cost(count), 1.0, ready
        if plain is not None:
            if count in costs.known:
                cost = exp(float(costs.logs[count]) - plain)
            drafts, times = costs.latest()
            if drafts in costs.known and (size.plain or not self._ahead):
                self._budget.know(number, median(times) * exp(plain - float(costs.logs[drafts])))
        for place in range(count):
            chance *= self._share(place)
            tokens += chance
        return max(cost - tokens, 0.0)

    def _affords(self, number: int, sequences: int, begins: bool) -> bool:
        """Whether what the size's present number may lose, and the graphs that it lacks, have been won."""
        size = self._sizes[number]
        if size.count is None:
            return True
        lost = size.lost * (size.left if begins else 1)
        if begins or sequences != size.sequences:
            size.sequences = sequences
            if self._must_capture(sequences, size.count):
                if not self._budget.affords(number, sequences, lost + _CAPTURE):
                    return False
                size.capturing = _TRIAL
        if size.capturing:
            size.capturing -= 1
            return True
        return self._budget.affords(number, sequences, lost)

    def _share(self, place: int) -> float:
        """Of right drafts in this place; two that were right half of the time stand for what is not known yet."""
        return (self._right[place] + 1) / (self._tried[place] + 2)

    def pays(self, prompt: int, answer: int) -> bool:
        return prompt <= self._longest_prompt * answer

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        for drafts, right in zip(drafted, accepted, strict=True):
            for place in range(min(drafts, right + 1)):
                self._tried[place] = _DECAY * self._tried[place] + 1
                self._right[place] = _DECAY * self._right[place] + (right > place)
        now, sequences = self._clock(), len(batch.requests)
        number, decodes = _size_of(sequences), batch.decodes == sequences and all(batch.logit_counts)
        self._account(batch, number, now, 1 + sum(accepted) / sequences if decodes else 0)
        if batch.draft_tokens is None:
            self._observe_plain(batch, number, now if decodes else None)
            return
        before, self._latest, self._plain = self._latest, None, None
        if not decodes:
            return
        if sum(batch.draft_counts) < (batch.draft_tokens or 0) * sequences / 2:  # it had not the drafts that it makes
            return
        self._latest = number, batch.draft_tokens, now
        # Another thread may have taken the step before; its time may be any.
        if before is not None and before[:2] == self._latest[:2] and now > before[2]:
            self._sizes.setdefault(number, _Size()).costs.add(batch.draft_tokens, now - before[2])

    def _account(self, batch: Batch, number: int, now: float, steps: float) -> None:
        """Put a step into the budget. steps: of plain decoding, that would have given its tokens; 0: not only decodes."""
        before = self._before
        plain = number if batch.draft_tokens is None and not batch.draft_counts and steps else None
        self._before = _Step(batch.requests, now, plain)
        # Without a request in common, the engine may have waited in between.
        if before is None or not steps or now <= before.end or set(before.requests).isdisjoint(batch.requests):
            return
        if plain is None:
            self._budget.drafted_step(number, batch.most_drafts, now - before.end, steps)
        else:
            self._budget.plain_step(number, now - before.end, before.plain == number)

    def _observe_plain(self, batch: Batch, number: int, now: float | None) -> None:
        """Compare the first steps without the draft layer with the latest that had it. now: None for a step with prompts."""
        self._latest = None
        plain = self._plain
        if plain is None:
            size = self._sizes.get(number)
            if size is None or not size.compare_plain:
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
            if len(plain.ends) > _SKIPPED + _TRIAL:
                taken = [end - start for start, end in pairwise(plain.ends[_SKIPPED:])]
                self._sizes[number].plain.append((plain.drafts, log(median(taken) / plain.seconds)))
                self._plain = None
        else:
            plain.ends.clear()

    def _plain_cost(self, size: "_Size") -> float | None:
        """The logarithm of a plain step's cost, relative to those of `size.costs`; None if it is not known."""
        costs = size.costs
        found = [float(costs.logs[drafts]) + ratio for drafts, ratio in size.plain if drafts in costs.known]
        if found:
            return median(found)
        return float(costs.logs[0]) + log(1 - self._one_layer) if 0 in costs.known else None

    def _decide(self, size: "_Size", ready: float) -> None:
        """Choose the number for the next `size.left` steps."""
        costs = size.costs
        costs.compare()
        known, size.left = costs.known, _TRIAL
        clear = not 0.2 * self._tried[0] < self._right[0] < 0.8 * self._tried[0]
        few = self._tried[0] < (_CERTAIN / 2 if clear else _CERTAIN)
        if few or 1 not in known:
            size.count = 1
            return
        if 0 not in known:
            size.count, size.left = 0, _BRIEF
            return
        speeds, errors = self._speeds(costs, ready)
        best = max((count for count in known if count), key=lambda count: speeds[count])
        plain = self._plain_cost(size)
        assert plain is not None
        without = -plain  # as fast as this without the draft layer
        size.steps += _STAY
        tried, pays = known[-1], speeds[best] >= without
        if self._ahead and not size.plain and size.plain_trials < _PLAIN_TRIALS and 0 < speeds[best] - without < _GAIN:
            size.plain_trials += 1
            size.count, size.left = None, 1
            return
        if tried < MAX_DRAFT_TOKENS:
            likely = tried < _ALWAYS and 2 * self._right[0] > self._tried[0]
            if likely or (pays and best == tried):
                size.count = tried + 1
                return
        chosen: int | None
        if not pays:
            chosen = 0 if speeds[0] >= without + log(_WORTH) else None
        else:
            chosen = next(c for c in known if c and speeds[c] >= speeds[best] - min(errors[c, best], _CLOSE))
        speeds[0] = max(speeds[0], without)
        other = self._unsettled(costs, speeds, errors, chosen or 0)
        again = None if size.trial else other
        if again is None and size.steps > (_REPEAT if chosen else 4 * _REPEAT):
            size.steps = 0
            near = (0, best - 1, best + 1) if pays else (best, best + 1)
            others = [count for count in near if count != chosen and 0 <= count <= MAX_DRAFT_TOKENS]
            size.turn += 1
            again = others[size.turn % len(others)]
        size.trial = again is not None
        if again is not None:
            size.count = again
        else:
            unsure = other is not None and errors[other, chosen or 0] > _UNSURE
            size.count, size.left = chosen, _TRIAL if unsure else _STAY

    @staticmethod
    def _unsettled(costs: StepCosts, speeds: np.ndarray, errors: np.ndarray, chosen: int) -> int | None:
        """The number that may well be better than the chosen one, if trying it tells more. speeds: [0] without the draft layer."""
        hopes = {}
        if costs.compared[chosen] < (2 if chosen else 3):  # the machine may have changed in the middle of a comparison
            second = max((count for count in costs.known if count != chosen), key=lambda count: speeds[count])
            if chosen or speeds[second] + _DOUBT > speeds[chosen]:
                return second
        for count in costs.known:
            # How often fewer drafts are right is known from more.
            error = costs.errors[count, chosen] if count < chosen else errors[count, chosen]
            if count != chosen and error > _SETTLED:
                hopes[count] = speeds[count] + error - speeds[chosen]
        likeliest = max(hopes, key=lambda count: hopes[count], default=None)
        return likeliest if likeliest is not None and hopes[likeliest] > 0 else None

    def _speeds(self, costs: StepCosts, ready: float) -> tuple[np.ndarray, np.ndarray]:
        """(logarithms of tokens a second [k], standard errors of their differences [k, k]), with drafts for a part `ready`."""
        shares = np.array([self._share(place) for place in range(MAX_DRAFT_TOKENS)])
        variances = shares * (1 - shares) / (np.array(self._tried) + 3)
        chances = np.concatenate(([1.0], ready * np.cumprod(shares)))
        tokens = np.cumsum(chances)
        # d log(tokens of k drafts) / d share of place i: the drafts from place i on would all become likelier.
        places = np.arange(MAX_DRAFT_TOKENS)
        gains = np.array([[chances[i + 1 : k + 1].sum() for i in places] for k in range(MAX_DRAFT_TOKENS + 1)])
        slopes = gains / shares / tokens[:, None]
        uncertain = slopes[:, None] - slopes[None]
        errors = np.sqrt(costs.errors**2 + (uncertain**2 * variances).sum(-1))
        return np.log(tokens) - costs.logs, errors


def _size_of(sequences: int) -> int:
    """Of a step, as graphs have it: 1, 2, 3 to 4, 5 to 8, … requests."""
    return (sequences - 1).bit_length()


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


class _Size:
    """What is known about steps of about as many requests."""

    def __init__(self) -> None:
        self.costs = StepCosts(MAX_DRAFT_TOKENS)
        # Of steps without the draft layer: (drafts of the steps before, logarithm of the costs' ratio).
        self.plain: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self.plain_trials = 0
        self.compare_plain = False  # with the next steps
        self.count: int | None = 1  # the present choice
        self.left = 0  # for how many steps it stands
        self.lost = 0.0  # plain steps, by each step with it
        self.sequences = 0  # of the step before
        self.capturing = 0  # for so many steps more it may capture graphs
        self.trial = False  # the present choice is another than the best, to learn more
        self.steps = 0  # since a number that seems worse was tried
        self.turn = 0
