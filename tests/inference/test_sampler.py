"""Samples against exact distributions, penalties and filters against direct formulas in plain Python."""

import math
import secrets
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.sampling.filters import Row, filter_scores, penalise
from deepseek_v32.inference.engine.sampling.noise import DraftNoise, gumbel
from deepseek_v32.inference.engine.sampling.sampler import Drafts, Sample, needs_host_sync
from deepseek_v32.inference.params import SamplingParams
from simulation import model as formula

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


def sample(logits: torch.Tensor, requests: list[Request]) -> list[Sample]:
    """Sample for requests without drafts."""
    return [only for [only] in sampler.sample_tokens(logits, requests).read()]


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
    got = penalise(rows, [Row(request(params, prompt=prompt, output=output)), Row(request(SamplingParams()))])
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
    single = [sample(logits[i : i + 1].clone(), [requests[i]])[0].token for i in range(60)]
    assert together == single
    order = torch.randperm(60, generator=generator).tolist()
    shuffled = sample(logits[order].clone(), [requests[i] for i in order])
    assert [s.token for s in shuffled] == [together[i] for i in order]


def test_noise_is_pinned() -> None:
    """A seed must give the same tokens after an upgrade. The numbers come from the formula in plain Python."""
    got = gumbel(torch.tensor([1, 1, -1]), torch.tensor([0, 1, 5]), 1000)
    for row, (seed, place) in enumerate([(1, 0), (1, 1), (2**64 - 1, 5)]):
        expected = torch.tensor([formula.gumbel(seed, place, token) for token in range(1000)], dtype=torch.float64)
        torch.testing.assert_close(got[row], expected, rtol=1e-13, atol=1e-15)
    assert got[:, 0].tolist() == pytest.approx([0.8964090837774948, 0.3442515303149075, 3.0544823744064553], rel=1e-13)


def test_a_million_draws_without_a_seed_follow_the_exact_distribution() -> None:
    """Seeds are random ones, as requests without a seed get, and places are all over an answer."""
    count, vocab = 1_000_000, 40
    logits = torch.linspace(2, -4, vocab, dtype=torch.float64)
    seeds = torch.from_numpy(np.frombuffer(secrets.token_bytes(8 * count), dtype=np.int64).copy())
    places = torch.arange(count) % 5000
    chunks = zip(seeds.split(50_000), places.split(50_000), strict=True)
    tokens = torch.cat([(gumbel(*chunk, vocab) + logits).argmax(-1) for chunk in chunks])
    expected = logits.softmax(-1) * count
    statistic = ((tokens.bincount(minlength=vocab) - expected) ** 2 / expected).sum()
    assert float(statistic) < 90  # p = 6e-6 at 39 degrees of freedom
    following = tokens[1:] * vocab + tokens[:-1]  # the next place's token is independent of this one's
    pairs = torch.outer(logits.softmax(-1), logits.softmax(-1)).flatten() * (count - 1)
    often = pairs > 20
    deviation = ((following.bincount(minlength=vocab**2) - pairs) ** 2 / pairs)[often].sum()
    degrees = int(often.sum())
    assert abs(float(deviation) - degrees) < 6 * math.sqrt(2 * degrees)


DRAFTED = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.7, top_p=0.9, logprobs=2),
    SamplingParams(temperature=1, presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.3),
    SamplingParams(temperature=0, repetition_penalty=3.0, logprobs=0),
    SamplingParams(temperature=2, min_p=0.05, top_k=8),
)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), counts=st.lists(st.integers(0, 4), min_size=1, max_size=6), data=st.data())
def test_drafts_give_the_tokens_of_one_step_after_another(seed: int, counts: list[int], data: st.DataObject) -> None:
    """Right, wrong and partly right drafts give the same tokens; rows before the first wrong draft, the same log-probabilities."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    table = torch.randn(VOCAB, VOCAB, generator=generator) * 2  # the logits after each token
    requests, drafts, rows, expected = [], torch.zeros(len(counts), 4, dtype=torch.int64), [], []
    for i, count in enumerate(counts):
        made = request(DRAFTED[i % len(DRAFTED)], seed=(seed + i) % 2**64, prompt=[i % VOCAB, 3], output=[2] * (i % 3))
        start = len(made.tokens)
        samples: list[Sample] = []
        while len(samples) <= count:
            samples += sample(table[made.tokens[-1]][None], [made])
            made.tokens.append(samples[-1].token)
        right = data.draw(st.integers(0, count))
        guesses = [each.token for each in samples][:count]
        guesses[right:] = [(token + 1) % VOCAB for token in guesses[right:]]
        drafts[i, :count] = torch.tensor(guesses, dtype=torch.int64)
        rows += [table[token] for token in [made.tokens[start - 1], *guesses]]
        expected.append([replace(each, drafted=n < right) for n, each in enumerate(samples[: right + 1])])
        del made.tokens[start:]
        requests.append(made)
    got = sampler.sample_tokens(torch.stack(rows), requests, Drafts(counts, drafts)).read()
    assert got == expected
    each = [
        sampler.sample_tokens(
            torch.stack(rows[sum(counts[:i]) + i :][: counts[i] + 1]), [requests[i]], Drafts(counts, drafts).of(i)
        ).read()
        for i in range(len(counts))
    ]
    assert [own for [own] in each] == expected


def test_a_bad_row_ends_a_request_only_if_the_drafts_before_it_are_right() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [0.0, math.nan, 1.0]])
    greedy = request(SamplingParams(temperature=0))
    [right] = sampler.sample_tokens(logits, [greedy], Drafts([1], torch.tensor([[1]]))).read()
    [wrong] = sampler.sample_tokens(logits, [greedy], Drafts([1], torch.tensor([[2]]))).read()
    assert wrong == [Sample(1)]
    assert right == [Sample(1, drafted=True), Sample(error="the model's logits for position 2 are not finite numbers")]


def test_a_guess_from_the_same_logits_is_the_token_that_is_sampled() -> None:
    """This holds at every later place of a step, for any seed: drafts from the model's own logits are never wrong."""
    generator = torch.Generator().manual_seed(3)
    params = [SamplingParams(temperature=t) for t in (0, 0.5, 1, 3)] * 10
    requests = [request(each, seed=2**64 - 1 - i, output=[1] * (i % 7)) for i, each in enumerate(params)]
    logits = torch.randn(len(requests), 500, generator=generator)
    noise = sampler.draft_noise(requests, torch.device("cpu"))
    assert isinstance(noise, DraftNoise) and noise.random
    for offset in (1, 2, 4):
        guesses = noise.choose(logits, torch.zeros(len(requests), dtype=torch.int64), offset)
        for each in requests:
            each.tokens += [0] * offset
        assert guesses.tolist() == [each.token for each in sample(logits, requests)]
        for each in requests:
            del each.tokens[-offset:]
    bad = torch.full((len(requests), 500), math.nan)
    assert noise.choose(bad, torch.zeros(len(requests), dtype=torch.int64), 1).max() < 500


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
    assert sampler.sample_tokens(torch.empty(0, VOCAB), []).read() == []


def test_only_penalties_and_top_p_with_random_sampling_need_the_host() -> None:
    free = [{}, {"temperature": 0}, {"temperature": 0, "top_p": 0.95}, {"top_k": 5, "min_p": 0.1, "logprobs": 3}]
    bound = [{"top_p": 0.95}, {"temperature": 0, "presence_penalty": 1}, {"repetition_penalty": 1.1}]
    assert not any(needs_host_sync(SamplingParams(**each)) for each in free)
    assert all(needs_host_sync(SamplingParams(**each)) for each in bound)
