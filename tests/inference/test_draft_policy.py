"""The rules of `auto`, over simulated steps that take what the table says: what drafts gain, and what wrong ones lose."""

import random
from collections.abc import Sequence

import pytest

from deepseek_v32.inference.config import AUTO, Limits
from deepseek_v32.inference.engine.drafting.policy import TABLE, DraftPolicy, Row, TableDrafts, make_policy
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import SamplingParams

# The chance that a draft is right, after right ones: of the demo in fp8, and as published for the released weights.
DEMO, RELEASED = (0.977, 0.873, 0.851, 0.873), (0.956, 0.735, 0.513)
NEVER, HALF = (0.0,) * 4, (0.5,) * 4
RELEASED_LAYERS = 61


def name(row: Row) -> str:
    return f"{row.device}, {row.requests} requests, {'any' if row.layers > 100 else row.layers} layers"


def policy_of(row: Row) -> TableDrafts:
    return TableDrafts(row.device, min(row.layers, RELEASED_LAYERS))


class Decoding:
    """Answers side by side, all of one length, whose drafts are right by chance. A plain step takes 1 for each request."""

    def __init__(
        self, policy: DraftPolicy, costs: Sequence[float], requests: int, right: Sequence[float], seed: int = 0
    ):
        self.policy, self.costs, self.right = policy, costs, right
        self.random, self.requests = random.Random(seed), requests
        self.tokens, self.time, self.steps = 0, 0.0, list[int | None]()

    def answer(self, length: int) -> None:
        requests = [Request(i, (0,), SamplingParams(), length, 0) for i in range(self.requests)]
        count = len(requests)
        made = self.policy.choose(count, requests)  # by the step that computes the prompts
        while any(request.output_count < length for request in requests):
            verified = tuple(min(made or 0, self.policy.most(request)) for request in requests)
            made = None if made is None else self.policy.choose(count, requests)
            batch = Batch(
                requests=tuple(requests),
                starts=tuple(len(request.tokens) - 1 for request in requests),
                counts=tuple(1 + each for each in verified),
                decodes=count,
                logit_counts=tuple(1 + each for each in verified),
                draft_counts=verified if any(verified) else (),
                draft_tokens=made,
            )
            for request, drafts in zip(requests, verified, strict=True):
                request.tokens += [0] * (1 + self._right(drafts))
            plain = made is None and not any(verified)
            self.time += count * (1 if plain else self.costs[batch.most_drafts])
            self.steps.append(None if plain else batch.most_drafts)
            self.policy.observe(batch)
        self.tokens += sum(request.output_count for request in requests)

    def _right(self, drafts: int) -> int:
        count = 0
        while count < drafts and self.random.random() < self.right[count]:
            count += 1
        return count

    def run(self, tokens: int, length: int) -> float:
        """Decode answers of that length until there are `tokens` of them; return the speed relative to plain decoding."""
        while self.tokens < tokens:
            self.answer(length)
        return self.tokens / self.time


CASES = [(row, requests) for row in TABLE for requests in sorted({1, 4, 16, row.requests}) if requests <= row.requests]


@pytest.mark.parametrize("right", [NEVER, HALF], ids=["never", "half"])
@pytest.mark.parametrize(
    ("row", "requests"), CASES, ids=lambda each: name(each) if isinstance(each, Row) else str(each)
)
def test_wrong_drafts_lose_at_most_five_percent(row: Row, requests: int, right: Sequence[float]) -> None:
    """The bound holds over the first 1,000 tokens, in long and in short answers, and also after drafts that were right."""
    for seed in range(3):
        costs = policy_of(row).costs(requests)
        assert costs is not None
        for length in (-(-1000 // requests), 40):
            assert Decoding(policy_of(row), costs, requests, right, seed).run(1000, length) >= 0.95
        policy = policy_of(row)
        Decoding(policy, costs, requests, (1.0,) * 4, seed).run(1000, 40)
        assert Decoding(policy, costs, requests, right, seed).run(1000, 40) >= 0.95


@pytest.mark.parametrize("requests", [1, 4, 16, 64])
@pytest.mark.parametrize(
    ("device", "layers", "right"),
    [
        ("CPU", 3, DEMO),
        ("GPU", 3, DEMO),
        ("GPU with CUDA graphs", 3, DEMO),
        ("GPU with CUDA graphs", RELEASED_LAYERS, RELEASED),
    ],
)
def test_natural_answers_gain_what_the_number_of_the_table_gains(
    device: str, layers: int, right: Sequence[float], requests: int
) -> None:
    """Neither the allowance nor two steps without a right draft take anything from them."""
    policy = TableDrafts(device, layers)
    costs = policy.costs(requests)
    if costs is None:
        pytest.skip("the table makes no drafts")
    drafts, right = len(costs) - 1, (*right, 0.0)
    expected, chance = 1.0, 1.0
    for place in range(drafts):
        chance *= right[place]
        expected += chance
    assert expected / costs[-1] > 1.03
    found = Decoding(policy, costs, requests, right)
    assert found.run(6000, 60) > 0.98 * expected / costs[-1]
    assert found.steps.count(drafts) > 0.98 * len(found.steps)


def test_steps_of_more_requests_than_the_table_has_go_without_drafts() -> None:
    for device in {row.device for row in TABLE}:
        for layers in (3, RELEASED_LAYERS):
            policy = TableDrafts(device, layers)
            most = max(row.requests for row in policy.rows)
            requests = [Request(i, (0,), SamplingParams(), 9, 0) for i in range(most + 1)]
            assert policy.choose(most, requests[:-1]) and policy.choose(most + 1, requests) is None


def test_a_request_with_two_steps_of_wrong_drafts_verifies_one_until_one_is_right() -> None:
    policy = TableDrafts("GPU with CUDA graphs", 3)
    good, bad = [Request(i, (0,), SamplingParams(), 100, 0) for i in range(2)]
    found = []
    for right in (0, 0, 0, 1):
        starts = tuple(len(each.tokens) - 1 for each in (good, bad))
        good.tokens += [0] * 4
        bad.tokens += [0] * (1 + right)
        policy.observe(Batch((good, bad), starts, (4, 4), 2, (4, 4), draft_counts=(3, 3), draft_tokens=3))
        found.append((policy.most(good), policy.most(bad)))
    assert found == [(4, 4), (4, 1), (4, 1), (4, 4)]
    assert policy.choose(2, [good, bad]) == 3


def test_drafting_begins_again_once_the_allowance_is_half_full() -> None:
    policy = TableDrafts("GPU with CUDA graphs", RELEASED_LAYERS)
    costs = policy.costs(1)
    assert costs is not None
    wrong = Decoding(policy, costs, 1, NEVER)
    wrong.answer(1000)
    assert wrong.steps[-1] is None and wrong.steps.count(None) > 900
    right = Decoding(policy, costs, 1, (1.0,) * 4)
    for _ in range(20):
        right.answer(50)
    assert right.steps[-1] == 2


@pytest.mark.parametrize(("right", "goes_on"), [(0.0, False), (DEMO[0], True)])
def test_steps_with_prompts_count_the_drafts_that_they_verify(right: float, goes_on: bool) -> None:
    """A server may have no others. Nothing is charged for answers without drafts."""
    policy, chance = TableDrafts("GPU with CUDA graphs", 3), random.Random(0)
    drafted, plain, prompt = (Request(i, (0,) * 9, SamplingParams(), 100, 0) for i in range(3))
    for _ in range(45):
        starts = (len(drafted.tokens) - 1, len(plain.tokens) - 1, 0)
        drafted.tokens += [0] * (1 + (chance.random() < right))
        plain.tokens.append(0)
        requests = (drafted, plain, prompt)
        policy.observe(Batch(requests, starts, (2, 1, 4), 2, (2, 1, 0), draft_counts=(1, 0, 0), draft_tokens=1))
    assert (policy.choose(3, [drafted]) is not None) == goes_on


def test_long_prompts_of_short_answers_are_not_drafted_for() -> None:
    demo, released = TableDrafts("CPU", 3), TableDrafts("GPU with CUDA graphs", RELEASED_LAYERS)
    assert demo.pays(16_000, 1000) and demo.pays(20, 1) and not demo.pays(16_000, 100)
    assert released.pays(100_000, 100) and not released.pays(100_000, 10)


def test_which_policy_an_engine_has() -> None:
    def policy(count: int, on_cpu: bool, graphs: bool, *observers: str) -> DraftPolicy | None:
        limits = Limits(8, 8, 1, 1, True, speculative_tokens=count, observers=observers)
        return make_policy(limits, 3, on_cpu, graphs)

    assert policy(0, True, False) is None
    fixed = policy(3, False, True, "cache check")
    assert fixed is not None and not isinstance(fixed, TableDrafts)
    assert fixed.choose(64, []) == 3 and fixed.pays(16_000, 1)
    for on_cpu, graphs, device in ((True, False, "CPU"), (False, False, "GPU"), (False, True, "GPU with CUDA graphs")):
        found = policy(AUTO, on_cpu, graphs)
        assert isinstance(found, TableDrafts) and {row.device for row in found.rows} == {device}
    # With checks of the caches, steps with drafts run without graphs, and those without drafts do not.
    assert policy(AUTO, False, True, "cache check") is None and policy(AUTO, False, False, "cache check") is not None
