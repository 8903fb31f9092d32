"""Tokens that are sampled within a graph are those that the sampler gives, with grammars, temperatures and both."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams, StructuredOutputsParams
from deepseek_v32.inference.engine import step
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import runner
from deepseek_v32.inference.engine.running.captured_step import GraphMemory
from deepseek_v32.inference.engine.running.inputs import DecodeInputs, StagedTokens
from deepseek_v32.inference.engine.sampling.graph_tokens import GreedyTokens, SamplingGraphs
from deepseek_v32.inference.engine.sampling.sampler import sample_tokens
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.text.grammar import Mask

CPU, VOCAB, ROWS = torch.device("cpu"), 70, 8
LIST = StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}, "minItems": 20})
WORD = StructuredOutputsParams(regex="[a-z]{60}")
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
KINDS = [
    replace(GREEDY, structured_outputs=LIST, ignore_eos=False),
    GREEDY,
    replace(GREEDY, temperature=1.0, seed=4),
    replace(GREEDY, temperature=0.6, seed=2**64 - 1, structured_outputs=WORD),
    replace(GREEDY, structured_outputs=StructuredOutputsParams(regex="[a-z]{0,60}"), min_tokens=9, ignore_eos=False),
]


@pytest.mark.heavy
def test_answers_are_those_that_the_sampler_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's answers agree with and without decode graphs, also next to requests that the graphs do not sample."""
    limits: dict[str, Any] = {"page_count": 32, "max_sequences": 8, "max_model_len": 256, "speculative_tokens": 0}
    prompts = [
        [(i * by) % 997 + 10 for i in range(count)] for by, count in ((37, 3), (11, 50), (53, 63), (7, 90), (29, 64))
    ]
    expected = [each.token_ids for each in LLM(device="cpu", **limits).generate(prompts, KINDS)]
    assert len(set(map(tuple, expected))) == len(expected)
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    llm, calls = LLM(device="cpu", **limits), []
    inner = step.sample_tokens
    monkeypatch.setattr(step, "sample_tokens", lambda *arguments: calls.append(1) or inner(*arguments))
    assert [each.token_ids for each in llm.generate(prompts, KINDS)] == expected
    assert len(calls) <= len(prompts), "only steps with prompts"
    for kind in (0, 2, 3):
        calls.clear()
        assert llm.generate(prompts[kind], KINDS[kind])[0].token_ids == expected[kind]
        assert len(calls) == 1, "only the prompt's step"
    reported = [KINDS[0], replace(GREEDY, logprobs=1), *KINDS[2:]]
    calls.clear()
    assert [each.token_ids for each in llm.generate(prompts, reported)] == expected
    assert len(calls) >= 19


class Bits:
    """A grammar that allows the same tokens at every place."""

    def __init__(self, allowed: torch.Tensor) -> None:
        padded = np.zeros(-(-VOCAB // 32) * 32, dtype=np.uint8)
        padded[:VOCAB] = allowed.numpy()
        self.words = np.packbits(padded, bitorder="little").view("<u4")

    def write_mask(self, tokens: list[int], first: int, mask: Mask, may_end: bool) -> None:
        mask.words[:] = self.words

    def takes(self, tokens: list[int], first: int, token: int) -> bool:
        return bool(np.unpackbits(self.words.view(np.uint8), bitorder="little")[token])


def made(id: int, temperature: float, grammar: Bits | None) -> Request:
    params = SamplingParams(temperature=temperature, structured_outputs=None if grammar is None else WORD)
    request = Request(id, (1, 2), params, max_tokens=50, seed=id * 977, grammar=grammar)  # type: ignore[arg-type]
    request.tokens += [0] * (id % 5)
    assert request.samples_in_graph
    return request


@pytest.mark.parametrize("rows", [4, ROWS])
def test_rows_are_sampled_as_the_sampler_samples_them(rows: int) -> None:
    """Any mixture of grammars and temperatures, step after step, with rows of padding; one row's logits may not be finite."""
    generator = torch.Generator().manual_seed(rows)
    staged, whole = StagedTokens(ROWS, CPU), torch.zeros(2 * ROWS, VOCAB)
    inputs, greedy = DecodeInputs(rows, 64, 0, staged), GreedyTokens(rows, staged)
    sampling = SamplingGraphs(2 * ROWS, CPU, GraphMemory(CPU).capture)
    for number in range(60):
        count = int(torch.randint(1, rows + 1, (), generator=generator))
        kind = torch.randint(0, 4, (count,), generator=generator).tolist()
        allowed = torch.rand(count, VOCAB, generator=generator) < 0.2
        allowed[:, number] = True
        requests = [
            made(number + i, 0.7 * (each % 2), Bits(allowed[i]) if each // 2 else None) for i, each in enumerate(kind)
        ]
        logits = 3 * torch.randn(rows, VOCAB, generator=generator)
        if number % 10 == 0:
            logits[0, 3] = torch.nan
        expected = sample_tokens(logits[:count], requests).read()
        whole[:rows] = logits
        inputs.fill(Batch((), (), (), 0, ()), token_place=greedy.next_place())
        greedy.find(whole[:rows], inputs.views.token_place, inputs.stage)
        found = sampling.sample(requests, whole[:rows], inputs, greedy, may_capture=True).read()
        assert [each.error for [each] in found] == [each.error for [each] in expected]
        assert [each.token for [each] in found] == [each.token for [each] in expected]
        for [each], kept in zip(expected, staged.sampled.tolist(), strict=False):
            assert each.error is not None or each.token == kept


def test_requests_that_ask_for_more_are_left_to_the_sampler() -> None:
    def request(**params: Any) -> Request:
        return Request(0, (1, 2, 3), SamplingParams(**params), max_tokens=9, seed=0)

    for params in (
        {"temperature": 0},
        {"temperature": 0, "top_k": 3},
        {"structured_outputs": WORD, "min_tokens": 2},
        {},
    ):
        assert request(**params).samples_in_graph, params
    for params in (
        {"top_k": 3},
        {"top_p": 0.9},
        {"min_p": 0.1},
        {"logprobs": 0},
        {"logit_bias": {3: 1.0}},
        {"min_tokens": 2},
        {"frequency_penalty": 0.1},
        {"repetition_penalty": 1.1, "temperature": 0},
    ):
        assert not request(**params).samples_in_graph, params
