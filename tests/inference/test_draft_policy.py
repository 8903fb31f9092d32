"""The choice of the number of drafts, over a simulated engine whose steps take what a table says, by a simulated clock."""

import random
import time
import weakref
from collections.abc import Sequence

import pytest

from deepseek_v32.inference.engine.drafting import measured_steps
from deepseek_v32.inference.engine.drafting.measured_drafts import MeasuredDrafts
from deepseek_v32.inference.engine.drafting.measured_steps import MeasuredSteps
from deepseek_v32.inference.engine.drafting.policy import FixedDrafts, make_policy
from deepseek_v32.inference.engine.limits import AUTO, MAX_DRAFT_TOKENS
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import Request, SamplingParams

Costs = dict[int | None, float]  # seconds of a step, by drafts


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def never(sequences: int, drafts: int) -> bool:
    """Steps have all graphs that they need."""
    return False


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
    policy: MeasuredDrafts,
    clock: Clock,
    sequences: int,
    tokens: int,
    costs: Costs,
    right: list[float],
    seed: int,
    busy: bool = False,
) -> tuple[float, list[int | None]]:
    """Answers of so many tokens, side by side: cost, and the number of drafts in each step.

    Drafts are right by chance. A step without the draft layer ends drafting for these requests. busy: every 20 to 100 steps the
    machine becomes up to four times slower or faster, which the cost leaves out.
    """
    rng = random.Random(seed)
    requests = [Request(i, (0,), SamplingParams(), tokens, 0) for i in range(sequences)]
    cost, done, verified, ready, chosen, speed, steps = 0.0, 0.0, 0, True, [], 1.0, 0
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
        if busy and steps == 0:
            speed, steps = 4 ** rng.random(), rng.randrange(20, 100)
        steps -= 1
        seconds = costs[verified if verified or made is not None else None] * rng.uniform(0.95, 1.05)
        cost += seconds
        clock.now += speed * seconds
        policy.observe(step_of(requests, verified, made), [verified] * sequences, accepted)
        done += 1 + sum(accepted) / sequences
        verified = made or 0
    return cost, chosen


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
    """Over twelve answers of 300 tokens; near the best number behind the first two, which find it out."""
    clock = Clock()
    policy = MeasuredDrafts(layers=round(1 / (costs[0] - 1)), clock=clock)
    seconds = [run(policy, clock, sequences, 300, costs, right, seed)[0] for seed in range(12)]
    best = min(3000 * cost / expected(count, right) for count, cost in costs.items())
    assert sum(seconds) < 1.03 * 3600 * costs[None]
    assert sum(seconds[2:]) < 1.08 * best


# A small model on a CPU: the draft layer costs a third of a step, and drafts verified together little each.
FLAT = {None: 1.0, 0: 1.3, 1: 1.9, 2: 2.1, 3: 2.3, 4: 2.5}


def test_several_drafts_are_tried_although_one_does_not_pay() -> None:
    clock = Clock()
    policy = MeasuredDrafts(3, clock)
    right = [0.85, 0.85, 0.85, 0.85]
    assert expected(1, right) / FLAT[1] < 1
    seconds = sum(run(policy, clock, 1, 300, FLAT, right, seed)[0] for seed in range(10))
    best = min(cost / expected(count, right) for count, cost in FLAT.items())
    assert seconds < 1.08 * 3000 * best


@pytest.mark.parametrize("right", [GOOD, BAD], ids=["good", "bad"])
def test_a_busy_machine_does_not_mislead_it(right: list[float]) -> None:
    """Its speed changes between the steps that are compared, now and then, but not in one direction."""
    costs, excess = linear(0.2, 0.1), []
    for first in range(0, 200, 10):
        clock = Clock()
        policy = MeasuredDrafts(9, clock)
        cost = sum(run(policy, clock, 1, 300, costs, right, seed, busy=True)[0] for seed in range(first, first + 10))
        excess.append(cost / 3000 / min(cost / expected(count, right) for count, cost in costs.items()))
    assert sum(excess) / len(excess) < 1.06 and max(excess) < 1.25


# The demo on two cores, by its profile: layers' passes cost the same whatever their rows, and a fifth row makes products slower.
CORES = {None: 1.0, 0: 1.33, 1: 1.5, 2: 1.85, 3: 2.2, 4: 3.3}


@pytest.mark.parametrize(
    ("right", "share"), [([0.96, 0.94, 0.92, 0.9], 0.95), ([0.7, 0.8, 0.8, 0.75], 0.93)], ids=["three pay", "few pay"]
)
def test_a_mistake_between_close_numbers_does_not_last(right: list[float], share: float) -> None:
    """On a machine whose speed changes: no run is slower than plain decoding, and on average they are near the best number."""
    costs, ratios = CORES, []
    best = max(expected(count, right) / cost for count, cost in costs.items())
    for first in range(0, 200, 10):
        clock = Clock()
        policy = MeasuredDrafts(3, clock)
        cost = sum(run(policy, clock, 1, 300, costs, right, seed, busy=True)[0] for seed in range(first, first + 10))
        ratios.append(3000 / cost)
    assert min(ratios) > 0.97
    assert sum(ratios) / len(ratios) > share * best


# The demo on an H200: plain steps are started ahead, so drafts cost much, and the layer alone as well.
GPU_ONE = {None: 1.0, 0: 1.5, 1: 1.86, 2: 2.5, 3: 3.1, 4: 3.9}
GPU_MANY = {None: 1.0, 0: 1.6, 1: 2.6, 2: 3.0, 3: 3.4, 4: 4.1}


@pytest.mark.parametrize(("costs", "sequences"), [(GPU_ONE, 1), (GPU_MANY, 16)], ids=["one", "many"])
@pytest.mark.parametrize("right", [[0.96, 0.9, 0.84, 0.8], [0.45, 0.5, 0.6, 0.65], BAD], ids=["good", "fair", "bad"])
def test_it_costs_little_where_plain_steps_are_cheap(costs: Costs, sequences: int, right: list[float]) -> None:
    """Over 12 answers of 150 tokens, with what is tried; and 50 later ones lose next to nothing."""
    for first in range(0, 100, 20):
        clock = Clock()
        policy = MeasuredDrafts(3, clock, ahead=True)
        numbers = range(first, first + 62)
        taken = [run(policy, clock, sequences, 150, costs, right, seed)[0] for seed in numbers]
        best = max(expected(count, right) / cost for count, cost in costs.items())
        assert sum(taken[:12]) < 1.04 * 1800 and sum(taken[12:]) < 1.01 * 7500
        assert sum(taken[12:]) < 1.08 * 7500 / best


def test_plain_steps_that_are_started_ahead_are_measured() -> None:
    """They are much cheaper than those that have the draft layer's work, so what seems to pay does not; 40 answers of 60 tokens."""
    costs: Costs = {None: 1.0, 0: 2.0, 1: 2.3, 2: 2.6, 3: 2.9, 4: 3.2}
    right = [0.7, 0.6, 0.6, 0.5]
    assert max(expected(count, right) / costs[count] for count in range(5)) < 0.85
    excess: dict[bool, list[float]] = {False: [], True: []}
    for ahead, found in excess.items():
        for first in range(0, 200, 40):
            clock = Clock()
            policy = MeasuredDrafts(3, clock, ahead=ahead)
            taken = [run(policy, clock, 1, 60, costs, right, seed)[0] for seed in range(first, first + 40)]
            found.append(sum(taken[10:]) / 1800)
    assert max(excess[True]) < 1.03
    # A policy that does not know of it is saved by its budget as long as plain steps come about at all.
    assert max(excess[False]) > 1.1 and sorted(excess[False])[-2] < 1.03


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
    assert not policy._steps._sizes


@pytest.mark.parametrize("right", [[0.97, 0.9, 0.8, 0.7], [0.3, 0.3, 0.3, 0.3]], ids=["right", "wrong"])
def test_steps_that_wait_to_be_counted_change_no_choice(right: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    costs, found = linear(0.3, 0.3), []
    for most in (measured_steps._MOST_WAITING, 1):
        monkeypatch.setattr(measured_steps, "_MOST_WAITING", most)
        clock = Clock()
        policy = MeasuredDrafts(3, clock, ahead=True)
        found.append([run(policy, clock, 1, 70, costs, right, seed) for seed in range(60)])
    assert found[0] == found[1]
    assert any(made is None for _, chosen in found[0] for made in chosen)


def test_few_steps_wait_to_be_counted() -> None:
    """However long an answer without drafts is: they hold their batches."""
    steps, request = MeasuredSteps(Clock(), 3, True), Request(0, (0,), SamplingParams(), 1000, 0)
    batches = list[weakref.ref[Batch]]()
    for _ in range(500):
        batch = step_of([request], 0, None)
        batches.append(weakref.ref(batch))
        steps.observe(batch, ())
    assert sum(each() is not None for each in batches) <= measured_steps._MOST_WAITING


def test_a_number_is_kept() -> None:
    assert make_policy(0, 61, True, False, never) is None
    for on_cpu, ahead, clock in (
        (True, False, time.thread_time),
        (False, False, time.perf_counter),  # without decode graphs, no step is started ahead
        (False, True, time.perf_counter),
    ):
        measured = make_policy(AUTO, 61, on_cpu, ahead, never)
        assert isinstance(measured, MeasuredDrafts) and measured._steps._clock is clock and measured._ahead == ahead
    # Beside prompts that are too long for drafts to pay.
    demo, released = make_policy(AUTO, 3, True, False, never), make_policy(AUTO, 61, False, True, never)
    assert demo is not None and released is not None
    assert demo.pays(16_000, 1000) and demo.pays(20, 1) and not demo.pays(16_000, 100)
    assert released.pays(100_000, 100) and not released.pays(100_000, 10)
    policy = make_policy(3, 61, False, True, never)
    assert isinstance(policy, FixedDrafts) and policy.choose(64, 1) == 3 and policy.pays(16_000, 1)
