"""What steps with different numbers of drafts cost, relative to each other, from steps that followed each other."""

from collections import deque
from collections.abc import Collection
from math import log, pi, sqrt
from statistics import median

import numpy as np

_WINDOW = 6  # steps next to a change of the number whose times are compared
_ENOUGH = 3  # steps whose time is taken for that of others
_REMEMBERED = 7  # comparisons of two numbers
_DRIFT = (
    0.03,
    0.1,
)  # standard error of a comparison, beside that of its steps, as a machine's speed changes meanwhile: least, at first
_FIRST = 4  # comparisons for which the latter counts
_WIDE = 1.4826  # standard deviations of a normal distribution in its median absolute deviation


class StepCosts:
    """Logarithms of the costs of steps, by their number of drafts, and how certain they are.

    A machine's speed changes, because other programs and clocks do; so the time of steps with one number is only compared with
    that of the steps with another number just before or after them. Each comparison of two numbers gives the logarithm of a ratio
    of medians; several give a median, because the speed may have changed in the middle of one. The costs are those that fit all
    pairs of numbers best, by weighted least squares.
    """

    def __init__(self, most: int) -> None:
        """most: the largest number of drafts."""
        # By (i, j) with i < j: log(cost j / cost i), as found in the latest comparisons.
        self._ratios: dict[tuple[int, int], deque[float]] = {}
        self._spread = 0.05  # of a step's time around the median, relative
        # Drafts and times of the present steps: the first ones, which are compared with the steps before, and the latest.
        self._count: int | None = None
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=_WINDOW)
        self._former: tuple[int, list[float]] | None = None  # of the steps before: compared once there are enough
        self.known: tuple[int, ...] = ()  # numbers whose costs can be compared, in order
        self.compared = [0] * (most + 1)  # comparisons in which a number took part
        self.logs = np.zeros(most + 1)  # logarithms of the known costs, relative to the first of them
        self.errors = np.zeros((most + 1, most + 1))  # standard errors of their differences

    def add(self, count: int, seconds: float) -> None:
        """A step with so many drafts has followed one with as many, and has taken so long."""
        if count != self._count:
            self.compare()
            enough = self._count is not None and len(self._latest) >= _ENOUGH
            self._former = (self._count, list(self._latest)) if enough and self._count is not None else None
            self._count, self._first = count, []
            self._latest.clear()
        if len(self._first) < _WINDOW:
            self._first.append(seconds)
        self._latest.append(seconds)

    def latest(self) -> tuple[int | None, list[float]]:
        """The number of drafts of the latest steps, and their times; None if they are not enough."""
        return (self._count, list(self._latest)) if len(self._latest) >= _ENOUGH else (None, [])

    def compare(self) -> None:
        """Take into account the steps since the number has changed, if they are enough and have not been."""
        count = self._count
        if count is None or len(self._first) < _ENOUGH:
            return
        if not self.known:
            self.known = (count,)
        if self._former is None:
            return
        former, times = self._former
        self._former = None
        if former not in self.known and count not in self.known:
            return
        for each in (times, self._first):
            self._spread = 0.8 * self._spread + 0.2 * _WIDE * _deviation([one / median(each) for one in each])
        ratio = log(median(self._first) / median(times))
        low, high = sorted((former, count))
        self._ratios.setdefault((low, high), deque(maxlen=_REMEMBERED)).append(ratio if count == high else -ratio)
        self.known = tuple(sorted({*self.known, low, high}))
        for number in (low, high):
            self.compared[number] += 1
        self._solve()

    def _solve(self) -> None:
        """The logarithms that fit best: those of a graph whose edges are pairs, with 0 for the first number."""
        # From how comparisons of the same numbers differ, and an assumption that counts less with each of them.
        seen = [(len(each) - 1, _WIDE * _deviation(each)) for each in self._ratios.values()]
        sums = _FIRST * _DRIFT[1] ** 2 + sum(count * deviation**2 for count, deviation in seen)
        drift = max(_DRIFT[0], sqrt(sums / (_FIRST + sum(count for count, _ in seen))))
        # The variance of a median of n is pi / 2 times that of a mean.
        variance = pi / 2 * (drift**2 + pi / 2 * self._spread**2 * 2 / _WINDOW)
        known, place = np.array(self.known), {count: place for place, count in enumerate(self.known)}
        laplacian, pulls = np.zeros((len(known), len(known))), np.zeros(len(known))
        for (low, high), ratios in self._ratios.items():
            weight, i, j = len(ratios) / variance, place[low], place[high]
            laplacian[[i, j], [i, j]] += weight
            laplacian[[i, j], [j, i]] -= weight
            pulls[j] += weight * median(ratios)
            pulls[i] -= weight * median(ratios)
        covariance = np.zeros_like(laplacian)
        covariance[1:, 1:] = np.linalg.inv(laplacian[1:, 1:])
        own = np.diag(covariance)
        self.logs[known] = covariance @ pulls
        self.errors[np.ix_(known, known)] = np.sqrt(np.maximum(own[:, None] + own - 2 * covariance, 0))


def _deviation(values: Collection[float]) -> float:
    """The median absolute deviation."""
    middle = median(values)
    return median(abs(each - middle) for each in values)
