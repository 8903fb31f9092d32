"""Steps that take the likeliest tokens from their graph give what sampling gives, with drafts and without, and the same errors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine import step
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import runner
from deepseek_v32.inference.engine.running.inputs import SCRATCH_PLACE, StagedTokens
from deepseek_v32.inference.engine.sampling.graph_tokens import GreedyTokens
from deepseek_v32.inference.engine.sampling.sampler import Drafts, Sample, sample_tokens
from deepseek_v32.inference.text.grammar import StructuredOutputsParams
from tiny_model.checkpoint import TINY, write_checkpoint

CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
PROMPTS = [[(i * by) % 997 for i in range(count)] for by, count in ((37, 3), (11, 50), (53, 63), (7, 150), (29, 64))]
VOCAB = 50


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1), "fp32")
    return directory


def load(checkpoint: Path, drafts: int, monkeypatch: pytest.MonkeyPatch) -> LLM:
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    limits: dict[str, Any] = {"page_count": 32, "max_sequences": 8, "max_model_len": 256}
    return LLM(checkpoint, device="cpu", speculative_tokens=drafts, **limits)


REPORTED, DRAWN = replace(GREEDY, logprobs=0), replace(GREEDY, temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def answers(checkpoint: Path) -> tuple[list[list[int]], list[int]]:
    """The sampler's answers: the likeliest tokens for all prompts, and random ones for the second."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        plain = load(checkpoint, 0, monkeypatch)
        likeliest = [each.token_ids for each in plain.generate(PROMPTS, REPORTED)]
        return likeliest, plain.generate(PROMPTS[1], DRAWN)[0].token_ids


@pytest.mark.heavy
@pytest.mark.parametrize("drafts", [0, 1, 4])
def test_answers_are_those_that_sampling_gives(
    checkpoint: Path, answers: tuple[list[list[int]], list[int]], drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers agree one by one, in batches, with sampled requests, and after staged drafts of other requests."""
    expected, sampled = answers
    llm, taken = load(checkpoint, drafts, monkeypatch), []
    sample_greedily = GreedyTokens.sample

    def count(self: GreedyTokens, *arguments: Any) -> Any:
        taken.append(len(arguments[0]))
        return sample_greedily(self, *arguments)

    monkeypatch.setattr(GreedyTokens, "sample", count)
    assert [each.token_ids for each in llm.generate(PROMPTS, GREEDY)] == expected
    assert taken and (drafts or len(taken) >= 19)
    assert [llm.generate(prompt, GREEDY)[0].token_ids for prompt in PROMPTS] == expected
    mixed = llm.generate(PROMPTS, [GREEDY, DRAWN, REPORTED, GREEDY, GREEDY])
    assert [each.token_ids for each in mixed] == [expected[0], sampled, *expected[2:]]
    stats = llm.stats()
    assert bool(stats.drafted_tokens[0]) == bool(drafts)


@pytest.mark.heavy
def test_nothing_is_sampled_that_the_graph_has_found(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = load(checkpoint, 2, monkeypatch)
    calls = []

    def count(*arguments: Any) -> Any:
        calls.append(1)
        return sample_tokens(*arguments)

    monkeypatch.setattr(step, "sample_tokens", count)
    llm.generate(PROMPTS[0], GREEDY)
    assert len(calls) == 1, "only the prompt's step"


def request(**params: Any) -> Request:
    return Request(0, (1, 2, 3), SamplingParams(**{"temperature": 0, **params}), max_tokens=9, seed=0, end_ids=(7,))


def test_requests_that_ask_for_more_are_sampled() -> None:
    assert request().takes_likeliest and request(stop="x", ignore_eos=True, top_p=0.5, seed=3).takes_likeliest
    for params in (
        {"temperature": 0.5},
        {"logprobs": 0},
        {"logit_bias": {3: 1.0}},
        {"min_tokens": 2},
        {"presence_penalty": 0.1},
        {"repetition_penalty": 1.1},
        {"structured_outputs": StructuredOutputsParams(choice=["a"])},
    ):
        assert not request(**params).takes_likeliest, params


def found_by(logits: torch.Tensor, given: list[int], counts: list[int], place: int | None = None) -> tuple[Any, Any]:
    """Return what a step gives to the host and what it stages; `counts` are the requests' rows."""
    staged = StagedTokens(4, CPU)
    staged.sampled[:] = -5
    tokens = GreedyTokens(len(logits), staged)
    number = tokens.next_place() if place is None else place
    tokens.given.copy_(torch.tensor(given))
    tokens.find(logits, torch.tensor([number]), torch.tensor([place is None]))
    return tokens.sample([request()] * len(counts), counts).read(), staged.sampled.tolist()


def test_right_drafts_are_counted_as_sampling_counts_them() -> None:
    """Random rows; the drafts of a request are the likeliest tokens up to a place."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        counts = torch.randint(1, 6, (3,), generator=generator).tolist()
        logits = torch.randn(sum(counts), VOCAB, generator=generator)
        best, given, drafts, first = logits.argmax(-1).tolist(), [], torch.zeros(3, 4, dtype=torch.int64), 0
        for i, count in enumerate(counts):
            own = [best[first + j] if torch.rand(1, generator=generator) < 0.7 else 1 for j in range(count - 1)]
            drafts[i, : count - 1] = torch.tensor(own)
            given += [3, *own]
            first += count
        expected = sample_tokens(logits, [request()] * 3, Drafts([count - 1 for count in counts], drafts)).read()
        found, _ = found_by(logits, given, counts)
        assert found == expected
        # The same count on the device.
        staged = StagedTokens(4, CPU)
        tokens = GreedyTokens(len(logits), staged)
        tokens.given.copy_(torch.tensor(given))
        tokens.find(logits, torch.tensor([1]), torch.tensor([False]))
        starts = [sum(counts[:i]) for i in range(3)]
        places = torch.tensor([row % 5 if row in starts else 5 + row % 16 for row in range(len(given))])
        assert tokens.count_accepted(torch.tensor(starts), places).tolist() == [len(each) - 1 for each in expected]


@pytest.mark.parametrize("ill", [torch.nan, torch.inf, -torch.inf])
def test_rows_that_are_not_finite_end_their_request_alone(ill: float) -> None:
    logits = torch.randn(3, VOCAB)
    logits[1] = ill
    if ill == torch.nan:
        logits[1, 1:] = 0.0
    found, _ = found_by(logits, [0, 0, 0], [1, 1, 1])
    assert found[0] == [Sample(int(logits[0].argmax()))] and found[2] == [Sample(int(logits[2].argmax()))]
    assert found[1] == sample_tokens(logits[1:2], [request()]).read()[0] and "not finite" in str(found[1][0].error)


def test_the_lowest_of_equal_tokens_is_taken() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[1, [7, 30]] = 1.0
    assert found_by(logits, [0, 0], [1, 1])[0] == [[Sample(0)], [Sample(7)]]


def test_what_runs_before_a_capture_stages_nothing() -> None:
    """Runs before a capture stage nothing, because another step's tokens may still be there and on the host."""
    assert found_by(torch.randn(2, VOCAB), [0, 0], [1, 1], SCRATCH_PLACE)[1] == [-5] * 4
    _, staged = found_by(torch.eye(VOCAB)[3:5], [0, 0], [1, 1])
    assert staged == [3, 4, -5, -5]
