"""Keeps a training within a time: of the steps that are left, as many are trained as fit, evenly spread over all stages."""

from collections import Counter
from collections.abc import MutableSequence, Sequence

from .schedule import Step

# Seconds of a step of 65,536 tokens on one H200, by stage and length. Only their ratios matter once steps have been measured.
_DENSE = {512: 0.034, 1024: 0.036, 2048: 0.037, 4096: 0.05, 8192: 0.077, 16384: 0.13}
_OTHER = {"indexer": 0.12, "sparse": 0.167, "draft": 0.125}


def expected_seconds(step: Step) -> float:
    if step.stage == "dense":
        return next((seconds for length, seconds in _DENSE.items() if step.length <= length), 0.26)
    return _OTHER[step.stage] * (1.5 if step.length > 16384 else 1.0)


class Pace:
    """Decides which steps of the plan are left out.

    left_out: one flag for each step of the plan, shared with the processes that generate batches. Flags are set up to `AHEAD` steps
    in advance, so that no batch is generated in vain, and never taken back. seconds: from now to the end of the plan, or None.
    """

    AHEAD = 256

    def __init__(self, plan: Sequence[Step], left_out: MutableSequence[int], start: int, seconds: float | None):
        self.plan, self.left_out, self.seconds = plan, left_out, seconds
        self._each = [expected_seconds(step) for step in plan]
        self._decided, self._carry = start, 0.0
        self._expected: Counter[str] = Counter()  # by stage, of the steps that were measured
        self._measured: Counter[str] = Counter()
        self._slowness = 1.0  # of the last stage that was measured
        self.share = 1.0  # of the steps from here on
        self.update(start, 0.0)

    def record(self, steps: Sequence[Step], seconds: float) -> None:
        """These steps, of one stage, took so long together."""
        stage = steps[0].stage
        self._expected[stage] += sum(map(expected_seconds, steps))
        self._measured[stage] += seconds
        self._slowness = self._measured[stage] / self._expected[stage]

    def update(self, done: int, elapsed: float) -> None:
        """Decide the next steps, when `done` steps of the plan are behind and this time has passed."""
        end = min(len(self.plan), done + self.AHEAD)
        if self.seconds is not None:
            decided = self._cost(done, self._decided)
            rest = self._cost(self._decided, len(self.plan))
            # Never to nothing: each stage keeps some steps, also when time is up.
            self.share = min(1.0, max(0.02, (self.seconds - elapsed - decided) / rest)) if rest else 1.0
        for number in range(self._decided, end):
            self._carry += self.share
            if self._carry < 1.0 - 1e-9:
                self.left_out[number] = 1
            else:
                self._carry -= 1.0
        self._decided = max(self._decided, end)

    def drop(self, stage: str, length: int) -> None:
        """Leave out the steps of this stage that are at least so long: they do not fit the memory."""
        for number, step in enumerate(self.plan):
            if step.stage == stage and step.length >= length:
                self.left_out[number] = 1

    def _cost(self, first: int, last: int) -> float:
        """Seconds of these steps of the plan, those left out excepted."""
        stages: Counter[str] = Counter()
        for number in range(first, last):
            if not self.left_out[number]:
                stages[self.plan[number].stage] += self._each[number]
        return sum(seconds * self._rate(stage) for stage, seconds in stages.items())

    def _rate(self, stage: str) -> float:
        """Measured by expected time; of a stage that has not begun as of the last one, but no less than 1."""
        if self._expected[stage]:
            return self._measured[stage] / self._expected[stage]
        return max(1.0, self._slowness)
