"""As many drafts as pay, by what has been measured: a DraftPolicy."""

import time
from collections.abc import Callable, Sequence
from math import log

import numpy as np

from ..limits import MAX_DRAFT_TOKENS
from ..scheduling.batch import Batch
from .draft_acceptance import DraftAcceptance
from .draft_budget import assumed_cost
from .draft_costs import StepCosts
from .measured_steps import MeasuredSize, MeasuredSteps, size_of

GPU_PROMPT = 128  # prompt tokens in the time of a decode step, about: 1.5 µs beside 0.23 ms on an H100
_TRIAL = 8  # steps with a number of drafts whose cost is to be measured
_ALWAYS = 3  # so many drafts are tried if most first drafts are right
_BRIEF = 5  # such steps that make no drafts, when their cost is not known at all
_STAY = 24  # steps with the chosen number before the next decision
_REPEAT = 400  # steps until another number is tried again that is not among the best
_CLOSE = 0.03  # the most that fewer drafts may seem to be slower, relative, and still be preferred
_SETTLED = 0.01  # a comparison so certain is not repeated
_DOUBT = 0.35  # how much faster no drafts must be, by one comparison, for it to be enough
_UNSURE = 0.1  # after one so uncertain, the next decision comes soon
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

    What is tried, and graphs that are captured for it, must have been won before by drafts that paid, but for a small share of the
    time (DraftBudget). Until then, answers keep to the number that is known to pay, or go without the draft layer.

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
        self._longest_prompt = layers * prompt_tokens / 2  # for each token of the answer
        self._acceptance = DraftAcceptance()
        self._sizes: dict[int, _Size] = {}
        self._steps = MeasuredSteps(clock, layers, ahead)

    def choose(self, sequences: int, ready: int) -> int | None:
        self._steps.catch_up()
        number = size_of(sequences)
        if number not in self._sizes:
            self._sizes[number] = _Size(self._steps.size(number))
        size = self._sizes[number]
        begins = size.left <= 0
        if begins:
            self._decide(size, ready / sequences)
            size.lost = self._loss(number, ready / sequences)
        if not self._affords(number, sequences, begins):
            self._retreat(number, sequences, ready / sequences)
        size.left -= 1
        size.measured.compare_plain = size.count is None
        return size.count

    def _retreat(self, number: int, sequences: int, ready: float) -> None:
        """For one step, keep to the number that is known to pay, or go without the draft layer."""
        size = self._sizes[number]
        size.count, size.left, size.trial = self._paying(size, ready), 1, False
        size.lost = self._loss(number, ready)
        if size.count is not None and (
            self._must_capture(sequences, size.count) or not self._steps.budget.affords(number, sequences, size.lost)
        ):
            size.count = None

    def _paying(self, size: "_Size", ready: float) -> int | None:
        """The number that is chosen if no other is tried; None if none is known to be faster than steps without the draft layer."""
        costs, plain = size.measured.costs, size.measured.plain_cost
        if plain is None or not any(costs.known) or (self._ahead and not size.measured.plain):
            return None
        speeds, errors = self._speeds(costs, ready)
        best = max((count for count in costs.known if count), key=lambda count: speeds[count])
        return _least(costs, speeds, errors, best) if speeds[best] >= -plain else None

    def _loss(self, number: int, ready: float) -> float:
        """Of each step with the size's present number against plain decoding, in plain steps, with drafts for a part `ready`."""
        size = self._sizes[number]
        if size.count is None:
            return 0.0
        self._steps.know_plain(number)
        cost = size.measured.cost_over_plain(size.count) or assumed_cost(size.count)
        return max(cost - float(self._acceptance.tokens(ready)[size.count]), 0.0)

    def _affords(self, number: int, sequences: int, begins: bool) -> bool:
        """Whether what the size's present number may lose, and the graphs that it lacks, have been won."""
        size = self._sizes[number]
        if size.count is None:
            return True
        lost = size.lost * (size.left if begins else 1)
        if begins or sequences != size.sequences:
            size.sequences = sequences
            if self._must_capture(sequences, size.count):
                lost += self._steps.budget.captures(number, size.count)
                if not self._steps.budget.affords(number, sequences, lost):
                    return False
                size.capturing = _TRIAL
        if size.capturing:
            size.capturing -= 1
            return True
        return self._steps.budget.affords(number, sequences, lost)

    def pays(self, prompt: int, answer: int) -> bool:
        return prompt <= self._longest_prompt * answer

    def observe(self, batch: Batch, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        if drafted:
            self._acceptance.observe(drafted, accepted)
        self._steps.observe(batch, accepted)

    def _decide(self, size: "_Size", ready: float) -> None:
        """Choose the number for the next `size.left` steps."""
        costs = size.measured.costs
        costs.compare()
        known, size.left = costs.known, _TRIAL
        if not self._acceptance.is_known or 1 not in known:
            size.count = 1
            return
        if 0 not in known:
            size.count, size.left = 0, _BRIEF
            return
        speeds, errors = self._speeds(costs, ready)
        best = max((count for count in known if count), key=lambda count: speeds[count])
        plain = size.measured.plain_cost
        assert plain is not None
        without = -plain  # as fast as this without the draft layer
        size.steps += _STAY
        tried, pays = known[-1], speeds[best] >= without
        if (
            self._ahead
            and not size.measured.plain
            and size.plain_trials < _PLAIN_TRIALS
            and 0 < speeds[best] - without < _GAIN
        ):
            size.plain_trials += 1
            size.count, size.left = None, 1
            return
        likely = tried < _ALWAYS and self._acceptance.is_likely
        if tried < MAX_DRAFT_TOKENS and (likely or (pays and best == tried)):
            size.count = tried + 1
            return
        chosen: int | None = _least(costs, speeds, errors, best)
        if not pays:
            chosen = 0 if speeds[0] >= without + log(_WORTH) else None
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
        errors = np.sqrt(costs.errors**2 + self._acceptance.variances(ready))
        return np.log(self._acceptance.tokens(ready)) - costs.logs, errors


def _least(costs: StepCosts, speeds: np.ndarray, errors: np.ndarray, best: int) -> int:
    """The least number that may be as fast as the best one."""
    return next(c for c in costs.known if c and speeds[c] >= speeds[best] - min(errors[c, best], _CLOSE))


class _Size:
    """The choice for steps of about as many requests."""

    def __init__(self, measured: MeasuredSize) -> None:
        self.measured = measured
        self.plain_trials = 0  # answers that went without drafts to compare such steps
        self.count: int | None = 1  # the present choice
        self.left = 0  # for how many steps it stands
        self.lost = 0.0  # plain steps, by each step with it
        self.sequences = 0  # of the step before
        self.capturing = 0  # for so many steps more it may capture graphs
        self.trial = False  # the present choice is another than the best, to learn more
        self.steps = 0  # since a number that seems worse was tried
        self.turn = 0
