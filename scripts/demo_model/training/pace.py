"""Keeps a training within a time: dense steps give way first, so that the stages after them stay whole while they fit."""

from collections import deque
from collections.abc import MutableSequence, Sequence
from statistics import median

from .schedule import Step

# Seconds of a step of 65,536 tokens on one H200, by stage and length. Only their ratios matter once steps have been measured.
_DENSE = {512: 0.034, 1024: 0.036, 2048: 0.037, 4096: 0.05, 8192: 0.077, 16384: 0.13}
_OTHER = {"indexer": 0.075, "sparse": 0.185, "draft": 0.07}
# Seconds in which a stage that has not begun compiles its kernels: kept free for it.
COMPILING = {"dense": 0.0, "indexer": 10.0, "sparse": 20.0, "draft": 20.0}


def expected_seconds(step: Step) -> float:
    if step.stage == "dense":
        return next((seconds for length, seconds in _DENSE.items() if step.length <= length), 0.26)
    return _OTHER[step.stage] * (1.5 if step.length > 16384 else 1.0)


class Pace:
    """Decides which steps of the plan are left out.

    left_out: one flag for each step of the plan, shared with the processes that generate batches. Flags are set until `AHEAD` steps
    are left to train, so that no batch is generated in vain, and never taken back. seconds: from now to the plan's end, or None.
    While dense steps are left, they alone are left out, unless the later stages need more than `LATER` of `seconds`, which
    those keep in any case.
    """

    AHEAD = 128  # at most 25 of them are trained until the next decision; workers are at most 96 ahead
    LATER = 0.5

    def __init__(self, plan: Sequence[Step], left_out: MutableSequence[int], start: int, seconds: float | None):
        self.plan, self.left_out, self.seconds = plan, left_out, seconds
        self._stages = [step.stage for step in plan]
        self._each = [expected_seconds(step) for step in plan]
        self._decided, self._carry = start, 0.0
        self._windows: dict[str, deque[float]] = {}  # by stage: the seconds of each window of steps by those expected
        self._slowness = 1.0  # of the last stage that was measured
        self.share = self.share_later = 1.0  # of the steps from here on: of the stage that runs, and of the later ones
        self.update(start, 0.0)

    def record(self, steps: Sequence[Step], seconds: float) -> None:
        """These steps, of one stage, took so long together. The first ones of a stage, and some of other lengths, compile: their
        time has passed, and says nothing of the next ones."""
        stage, rate = steps[0].stage, seconds / sum(map(expected_seconds, steps))
        if stage not in self._windows:
            self._windows[stage] = deque(maxlen=16)
        else:
            self._windows[stage].append(rate)
            self._slowness = median(self._windows[stage])

    def update(self, done: int, elapsed: float) -> None:
        """Decide the next steps, when `done` steps of the plan are behind and this time has passed."""
        if self.seconds is not None:
            dense, later = self._costs(self._decided, len(self.plan))
            left = self.seconds - elapsed - sum(self._costs(done, self._decided)) - self._compiling(done)
            kept = min(later, self.seconds * self.LATER, max(0.0, left)) if dense else later
            # Never to nothing: each stage keeps some steps, also when time is up.
            self.share = _share(left - kept, dense) if dense else _share(left, later)
            self.share_later = _share(kept if dense else left, later)
        ahead = self._decided - done - sum(self.left_out[done : self._decided])
        while self._decided < len(self.plan) and ahead < self.AHEAD:
            self._carry += self.share if self.plan[self._decided].stage == "dense" else self.share_later
            kept = self._carry > 1.0 - 1e-9
            if kept:
                self._carry -= 1.0
            else:
                self.left_out[self._decided] = 1
            ahead += kept
            self._decided += 1

    def drop(self, stage: str, length: int) -> None:
        """Leave out the steps of this stage that are at least so long: they do not fit the memory."""
        for number, step in enumerate(self.plan):
            if step.stage == stage and step.length >= length:
                self.left_out[number] = 1

    def _costs(self, first: int, last: int) -> tuple[float, float]:
        """Seconds of these steps of the plan, those left out excepted: of the dense stage, and of all others."""
        stages: dict[str, float] = {}
        part = slice(first, last)
        for stage, seconds, left_out in zip(self._stages[part], self._each[part], self.left_out[part], strict=True):
            if not left_out:
                stages[stage] = stages.get(stage, 0.0) + seconds
        costs = {stage: seconds * self._rate(stage) for stage, seconds in stages.items()}
        return costs.pop("dense", 0.0), sum(costs.values())

    def _compiling(self, done: int) -> float:
        """Seconds that the stages after step `done` will compile."""
        running = self.plan[min(done, len(self.plan) - 1)].stage
        ahead = set(self._stages[done:]) - {running}
        return sum(COMPILING[stage] for stage in ahead)

    def _rate(self, stage: str) -> float:
        """Measured by expected time; of a stage that has not begun as of the last one, but from 1 to 1.5."""
        if windows := self._windows.get(stage):
            return median(windows)
        return min(1.5, max(1.0, self._slowness))


def _share(seconds: float, cost: float) -> float:
    """Of steps that cost so much, the share that fits these seconds."""
    return min(1.0, max(0.02, seconds / cost)) if cost else 1.0
