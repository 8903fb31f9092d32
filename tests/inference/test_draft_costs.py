"""The costs of steps by their number of drafts, from times whose true ratios are known."""

import random
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest

from deepseek_v32.inference.engine.drafting.draft_costs import StepCosts

TRUE = (1.0, 1.3, 1.4, 1.9, 2.0)


def feed(costs: StepCosts, order: list[int], rng: random.Random, noise: float, steps: int = 8) -> None:
    for count in order:
        for _ in range(steps):
            costs.add(count, TRUE[count] * exp(rng.gauss(0, noise)))
        costs.compare()


def test_exact_times_give_exact_ratios() -> None:
    costs = StepCosts(4)
    feed(costs, [1, 0, 1, 2, 3, 4, 3], random.Random(0), 0)
    assert costs.known == (0, 1, 2, 3, 4)
    for count, cost in enumerate(TRUE):
        assert costs.logs[count] - costs.logs[1] == pytest.approx(log(cost / TRUE[1]), abs=1e-12)


def test_a_machine_that_changes_between_trials_is_allowed_for() -> None:
    """It becomes three times slower while the number stays: steps that do not follow each other are not compared."""
    costs = StepCosts(4)
    for speed in (1.0, 3.0, 0.5):
        for count in (1, 3, 1):
            for _ in range(8):
                costs.add(count, speed * TRUE[count])
        for _ in range(20):
            costs.add(1, speed * TRUE[1])
        for _ in range(20):  # the change
            costs.add(1, 2.0 * speed * TRUE[1])
    costs.compare()
    assert costs.logs[3] - costs.logs[1] == pytest.approx(log(TRUE[3] / TRUE[1]), abs=1e-12)


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_errors_tell_how_far_off_it_is(noise: float) -> None:
    """Over many runs, differences are as far from the truth as their standard errors say; and they shrink with further trials."""
    scores, early, late = [], [], []
    for seed in range(60):
        rng, costs = random.Random(seed), StepCosts(4)
        feed(costs, [1, 0, 1, 2, 3, 4], rng, noise)
        early.append(costs.errors[3, 4])
        feed(costs, [3, 4] * 4, rng, noise)
        late.append(costs.errors[3, 4])
        for one, other in ((0, 1), (1, 2), (3, 4), (0, 4)):
            found = costs.logs[other] - costs.logs[one]
            scores.append((found - log(TRUE[other] / TRUE[one])) / costs.errors[one, other])
    assert np.mean(late) < 0.7 * np.mean(early)
    assert 0.1 < np.std(scores) < 1.5


def test_costs_fit_all_comparisons_best() -> None:
    """Against numpy's least squares over the comparisons that were made, with their variances equal."""
    rng, costs = random.Random(3), StepCosts(4)
    times = {count: [cost * exp(rng.gauss(0, 0.1)) for _ in range(3)] for count, cost in enumerate(TRUE)}
    order = [0, 1, 2, 0]
    for count in order:
        for each in times[count]:
            costs.add(count, each)
    costs.compare()
    middle = {count: log(float(np.median(each))) for count, each in times.items()}
    rows, values = [], []
    for one, other in pairwise(order):
        row = np.zeros(3)
        row[other] += 1
        row[one] -= 1
        rows.append(row)
        values.append(middle[other] - middle[one])
    fitted = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
    assert costs.logs[1:3] - costs.logs[0] == pytest.approx(fitted[1:] - fitted[0], abs=1e-9)


def test_two_steps_say_nothing() -> None:
    costs = StepCosts(4)
    feed(costs, [1], random.Random(0), 0)
    feed(costs, [0], random.Random(0), 0, steps=2)
    assert costs.known == (1,)
