"""The choice of the number of drafts, over a simulated engine whose steps take what a table says, by a simulated clock."""

import random
from collections.abc import Sequence

import pytest

from deepseek_v32.inference.engine.batch import Batch
from deepseek_v32.inference.engine.draft_policy import MAX_DRAFT_TOKENS, FixedDrafts, MeasuredDrafts, make_policy
from deepseek_v32.inference.engine.limits import AUTO
from deepseek_v32.inference.params import Request, SamplingParams

Costs = dict[int | None, float]  # seconds of a step, by drafts


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def step_of(requests: Sequence[Request], verified: int, made: int | None) -> Batch:
    count = len(requests)
    return Batch(
        requests=tuple(requests),
        starts=(1,) * count,
        counts=(1 + verified,) * count,
        decodes=count,
        logit_counts=(1 + verified,) * count,
        draft_counts=(verified,) * count if verified else (),
        draft_rows=tuple(range(count)) if verified else (),
        draft_tokens=made,
    )


def run(
    policy: MeasuredDrafts, clock: Clock, sequences: int, tokens: int, costs: Costs, right: list[float], seed: int
) -> tuple[float, list[int | None]]:
    """Answers of so many tokens, side by side: seconds, and the number of drafts in each step.

    Drafts are right by chance. A step without the draft layer ends drafting for these requests.
    """
    rng = random.Random(seed)
    requests = [Request(i, (0,), SamplingParams(), tokens, 0) for i in range(sequences)]
    start, done, verified, ready, chosen = clock.now, 0.0, 0, True, []
    while done < tokens:
        made = policy.choose(sequences, sequences) if ready else None
        ready = made is not None
        chosen.append(made)
        accepted = []
        for _ in requests:
            count = 0
            while count < verified and rng.random() < right[count]:
                count += 1
            accepted.append(count)
        clock.now += costs[verified if verified or made is not None else None] * rng.uniform(0.95, 1.05)
        policy.observe(step_of(requests, verified, made), [verified] * sequences, accepted)
        done += 1 + sum(accepted) / sequences
        verified = made or 0
    return clock.now - start, chosen


def expected(count: int | None, right: list[float]) -> float:
    tokens, chance = 1.0, 1.0
    for place in range(count or 0):
        chance *= right[place]
        tokens += chance
    return tokens


GOOD, FAIR, BAD = [0.95, 0.75, 0.5, 0.4], [0.7, 0.5, 0.4, 0.3], [0.05] * 4


def linear(each: float, layer: float = 0.02) -> Costs:
    return {None: 1.0, **{count: 1 + layer + each * count for count in range(MAX_DRAFT_TOKENS + 1)}}


@pytest.mark.parametrize("sequences", [1, 3, 16])
@pytest.mark.parametrize("right", [GOOD, FAIR, BAD], ids=["good", "fair", "bad"])
@pytest.mark.parametrize("costs", [linear(0.05), linear(0.2), linear(0.6), linear(1.0, 0.25)], ids=str)
def test_it_is_near_the_best_number_and_never_slower_than_none(
    sequences: int, right: list[float], costs: Costs
) -> None:
    """Over ten answers of 300 tokens, with what the first ones cost to find that out."""
    clock = Clock()
    policy = MeasuredDrafts(layers=round(1 / (costs[0] - 1)), clock=clock)
    seconds = sum(run(policy, clock, sequences, 300, costs, right, seed)[0] for seed in range(10))
    plain = 3000 * costs[None]
    best = min(3000 * cost / expected(count, right) for count, cost in costs.items())
    assert seconds < 1.03 * plain
    assert seconds < 1.08 * best


def test_a_first_answer_costs_little_where_drafts_do_not_pay() -> None:
    clock = Clock()
    seconds, chosen = run(MeasuredDrafts(3, clock), clock, 1, 1000, linear(0.6, 0.33), BAD, 0)
    assert seconds < 1.03 * 1000 and chosen[-1] is None


def test_it_follows_what_changes() -> None:
    """Drafts become right, as with another kind of text; or they stop being so."""
    clock = Clock()
    policy = MeasuredDrafts(61, clock)
    costs = linear(0.2, 1 / 62)
    assert run(policy, clock, 1, 2000, costs, BAD, 0)[1][-1] in (0, None)
    assert (run(policy, clock, 1, 4000, costs, GOOD, 1)[1][-1] or 0) >= 2
    assert run(policy, clock, 1, 4000, costs, BAD, 2)[1][-1] in (0, None)


def test_steps_with_prompts_say_nothing_about_costs() -> None:
    clock = Clock()
    policy = MeasuredDrafts(61, clock)
    request = Request(0, (0,) * 9, SamplingParams(), 5, 0)
    for _ in range(5):
        clock.now += 100
        policy.observe(Batch((request,), (0,), (8,), 0, (0,), draft_tokens=1), [], [])
    assert not policy._sizes


def test_a_number_is_kept() -> None:
    assert make_policy(0, 61) is None
    assert isinstance(make_policy(AUTO, 61), MeasuredDrafts)
    policy = make_policy(3, 61)
    assert isinstance(policy, FixedDrafts) and policy.choose(64, 1) == 3
