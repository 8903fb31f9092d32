"""Samples against exact distributions, penalties and filters against direct formulas in plain Python."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepseek_v32.inference.engine.sampler import (
    Sample,
    filter_scores,
    inverse_cdf,
    needs_host_sync,
    penalise,
    sample,
    uniform,
)
from deepseek_v32.inference.params import Request, SamplingParams

VOCAB = 12
LOGITS = [2.0, -1.0, 0.5, 3.0, 0.0, 1.5, 1.5, -4.0, 2.5, 0.25, -0.5, 1.0]
SAMPLES = 8_000

FILTERS = {
    "plain": SamplingParams(),
    "hot": SamplingParams(temperature=2.5),
    "cold": SamplingParams(temperature=0.4),
    "top_k": SamplingParams(top_k=4),
    "top_k 1": SamplingParams(top_k=1),
    "top_k all": SamplingParams(top_k=-1),
    "top_k beyond the vocabulary": SamplingParams(top_k=100),
    "top_k with a tie at the k-th": SamplingParams(top_k=5),
    "top_p": SamplingParams(top_p=0.8),
    "top_p of less than the likeliest": SamplingParams(top_p=0.01),
    "min_p": SamplingParams(min_p=0.2),
    "min_p 1": SamplingParams(min_p=1.0),
    "top_p of the mass that top_k leaves": SamplingParams(top_k=3, top_p=0.7),
    "all": SamplingParams(temperature=1.5, top_k=8, top_p=0.9, min_p=0.1),
}


def request(params: SamplingParams, seed: int = 0, prompt: list[int] | None = None, output: list[int] = ()) -> Request:
    made = Request(0, tuple(prompt or [0]), params, 100, seed)
    made.tokens += output
    return made


def distribution(logits: list[float], params: SamplingParams) -> list[float]:
    """The exact distribution, by the definitions of vLLM's filters: min_p, then top_k, then top_p of the remaining tokens."""
    weights = [math.exp((x - max(logits)) / params.temperature) for x in logits]
    floor = params.min_p * max(weights)
    weights = [w if w >= floor else 0.0 for w in weights]
    if 0 < params.top_k < len(weights):
        kth = sorted(weights, reverse=True)[params.top_k - 1]
        weights = [w if w >= kth else 0.0 for w in weights]
    if params.top_p < 1:
        reached, target = 0.0, params.top_p * sum(weights)
        for last in sorted(weights, reverse=True):
            reached += last
            if reached >= target:
                break
        weights = [w if w >= last else 0.0 for w in weights]  # tokens that tie with the last one stay
    total = sum(weights)
    return [w / total for w in weights]


def chi_square_limit(degrees: int) -> float:
    """The 99.9th percentile of chi-square, by Wilson and Hilferty's approximation."""
    step = 2 / (9 * degrees)
    return degrees * (1 - step + 3.09 * math.sqrt(step)) ** 3


def assert_sampled_from(tokens: list[int], exact: list[float]) -> None:
    counts = Counter(tokens)
    assert all(exact[token] > 0 for token in counts), "a token that the filters rule out"
    possible = [token for token, p in enumerate(exact) if p > 0]
    expected = [len(tokens) * exact[token] for token in possible]
    if len(possible) > 1:
        statistic = sum((counts[token] - e) ** 2 / e for token, e in zip(possible, expected, strict=True))
        assert statistic < chi_square_limit(len(possible) - 1)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("varied", ["seeds", "positions"])
def test_samples_follow_the_exact_distribution(name: str, varied: str) -> None:
    params = FILTERS[name]
    requests = [request(params, seed=i if varied == "seeds" else 7) for i in range(SAMPLES)]
    if varied == "positions":
        for i, r in enumerate(requests):
            r.tokens = range(1 + i)  # only its length matters here
    sampled = sample(torch.tensor(LOGITS).expand(SAMPLES, VOCAB).clone(), requests)
    assert_sampled_from([s.token for s in sampled], distribution(LOGITS, params))


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.sampled_from([-3.0, 0.0, 0.5, 1.0, 1.0, 2.0, 4.0]), min_size=VOCAB, max_size=VOCAB),
    params=st.lists(
        st.builds(
            SamplingParams,
            temperature=st.sampled_from([0.3, 1.0, 2.0]),
            top_k=st.integers(-1, VOCAB + 1).filter(bool),
            top_p=st.sampled_from([0.05, 0.33, 0.77, 0.999, 1.0]),
            min_p=st.sampled_from([0.0, 0.07, 0.9]),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_filters_of_a_mixed_batch_equal_the_definition_row_by_row(
    logits: list[float], params: list[SamplingParams]
) -> None:
    kept = filter_scores(torch.tensor([logits] * len(params)), params)
    exact = torch.tensor([distribution(logits, p) for p in params], dtype=torch.float64)
    torch.testing.assert_close(kept.exp() / kept.exp().sum(-1, keepdim=True), exact, rtol=1e-12, atol=1e-15)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1),
    output=st.lists(st.integers(0, VOCAB - 1)),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    repetition=st.floats(0.1, 3),
)
def test_penalties_equal_the_formula(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    presence: float,
    frequency: float,
    repetition: float,
) -> None:
    params = SamplingParams(
        presence_penalty=presence, frequency_penalty=frequency, repetition_penalty=repetition, temperature=0
    )
    expected = []
    for token, x in enumerate(logits):
        if token in prompt or token in output:
            x = x / repetition if x > 0 else x * repetition
        expected.append(x - frequency * output.count(token) - presence * (token in output))
    untouched = torch.tensor(logits)
    rows = torch.tensor([logits, logits])
    got = penalise(rows, [request(params, prompt=prompt, output=output), request(SamplingParams())])
    torch.testing.assert_close(got[0], torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert torch.equal(got[1], untouched)


def test_filters_of_a_large_vocabulary() -> None:
    """More tokens than the candidates that the filters look at first. For the last row, which is flat, those are too few."""
    vocab = 5000
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, vocab, generator=generator) * torch.tensor([[3.0], [1.0], [3.0], [0.01]])
    params = [
        SamplingParams(top_p=0.9),
        SamplingParams(top_k=2000, top_p=0.9),
        SamplingParams(top_k=2),
        SamplingParams(top_p=0.9),
    ]
    kept = filter_scores(logits, params)
    for row, p in enumerate(params):
        exact = torch.tensor(distribution(logits[row].double().tolist(), p), dtype=torch.float64)
        got = kept[row].exp() / kept[row].exp().sum()
        # At the bound of top_p, rounding may decide about one token.
        assert ((got > 0) != (exact > 0)).sum() <= 1
        torch.testing.assert_close(got, exact, rtol=1e-3, atol=1e-6)


def test_top_p_1_keeps_the_smallest_masses_whatever_the_other_rows_ask() -> None:
    logits = torch.randn(20, 3000, generator=torch.Generator().manual_seed(2)) * 8
    params = [SamplingParams(top_k=2900)] * 19 + [SamplingParams(top_p=0.5)]
    kept = filter_scores(logits, params)
    assert (kept > -torch.inf).sum(-1).tolist()[:19] == [2900] * 19


def test_penalties_apply_to_greedy_requests() -> None:
    greedy = SamplingParams(temperature=0, presence_penalty=1.0)
    logits = torch.tensor([[0.0, 2.0, 1.5]])
    assert sample(logits.clone(), [request(greedy)])[0].token == 1
    assert sample(logits.clone(), [request(greedy, output=[1])])[0].token == 2


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert sample(torch.tensor([[1.0, 3.0, 3.0]]), [request(SamplingParams(temperature=0))])[0].token == 1


def test_the_same_seed_and_position_sample_the_same_whatever_the_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = [*FILTERS.values(), SamplingParams(temperature=0)]
    requests = [request(kinds[i % len(kinds)], seed=i, output=[1] * (i % 5)) for i in range(60)]
    logits = torch.randn(60, 1000, generator=generator) * 3
    together = [s.token for s in sample(logits.clone(), requests)]
    alone = [sample(logits[i : i + 1].clone(), [requests[i]])[0].token for i in range(60)]
    assert together == alone
    order = torch.randperm(60, generator=generator).tolist()
    shuffled = sample(logits[order].clone(), [requests[i] for i in order])
    assert [s.token for s in shuffled] == [together[i] for i in order]


def test_uniforms_are_pinned() -> None:
    """A seed must give the same tokens after an upgrade."""
    assert [uniform(1, 0), uniform(1, 1), uniform(2**64 - 1, 5)] == [
        0.3035680343067586,
        0.9002684531124185,
        0.46292535650502586,
    ]
    numbers = [uniform(seed, position) for seed in range(100) for position in range(100)]
    assert len(set(numbers)) == 10_000 and min(numbers) >= 0 and max(numbers) < 1
    assert abs(sum(numbers) / 10_000 - 0.5) < 3 / math.sqrt(12 * 10_000)


def test_the_ends_of_the_unit_interval_sample_possible_tokens() -> None:
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf, -1.0, -torch.inf]], dtype=torch.float64)
    last = math.nextafter(1.0, 0.0)
    assert [int(inverse_cdf(scores, torch.tensor([u], dtype=torch.float64))) for u in (0.0, last)] == [1, 3]


def test_tiny_temperatures_do_not_overflow() -> None:
    params = SamplingParams(temperature=1e-9)
    assert sample(torch.tensor([[500.0, 1000.0, -1000.0]]), [request(params)])[0].token == 1


def test_logprobs_are_those_of_the_raw_logits() -> None:
    params = SamplingParams(temperature=0, logprobs=2, presence_penalty=2.0)
    requests = [request(params, output=[3]), request(SamplingParams(temperature=0)), request(FILTERS["cold"])]
    got = sample(torch.tensor([LOGITS] * 3), requests)
    raw = [x - math.log(sum(map(math.exp, LOGITS))) for x in LOGITS]
    assert got[1].logprob is None and got[2].logprob is None
    chosen = got[0].logprob
    assert chosen is not None and chosen.token_id == got[0].token == 8  # 3 is the likeliest, and penalised
    assert chosen.logprob == pytest.approx(raw[8], rel=1e-5)
    assert [token for token, _ in chosen.top] == [3, 8]
    assert [value for _, value in chosen.top] == pytest.approx([raw[3], raw[8]], rel=1e-5)


@pytest.mark.parametrize(
    "row",
    [
        [0.0, math.nan, 1.0],
        [math.nan, 0.0, 5.0],
        [0.0, math.inf, 1.0],
        [-math.inf] * 3,
    ],
    ids=["nan", "nan below the largest", "inf", "nothing possible"],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_bad_logits_fails_alone(row: list[float], temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=1, logprobs=1, top_p=0.9)
    good = [-math.inf, 0.0, 20.0]
    got = sample(torch.tensor([good, row, good]), [request(params) for _ in range(3)])
    assert [s.token for s in got] == [2, -1, 2]
    assert got[0].error is None and got[1] == Sample(error="the model's logits for position 1 are not finite numbers")


def test_no_requests_no_samples() -> None:
    assert sample(torch.empty(0, VOCAB), []) == []


def test_only_penalties_and_top_p_with_random_sampling_need_the_host() -> None:
    free = [{}, {"temperature": 0}, {"temperature": 0, "top_p": 0.95}, {"top_k": 5, "min_p": 0.1, "logprobs": 3}]
    bound = [{"top_p": 0.95}, {"temperature": 0, "presence_penalty": 1}, {"repetition_penalty": 1.1}]
    assert not any(needs_host_sync(SamplingParams(**each)) for each in free)
    assert all(needs_host_sync(SamplingParams(**each)) for each in bound)
