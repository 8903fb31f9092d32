"""On a Hopper GPU, tokens that graphs sample are those that the sampler gives: with grammars, temperatures and both."""

from dataclasses import replace
from typing import Any

import pytest

from deepseek_v32.inference import LLM, SamplingParams, StructuredOutputsParams
from deepseek_v32.inference.engine import step

pytestmark = pytest.mark.gpu

LIMITS: dict[str, Any] = {"page_count": 600, "max_sequences": 16, "max_model_len": 1024, "speculative_tokens": 0}
LIST = StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}, "minItems": 60})
WORDS = StructuredOutputsParams(regex="([a-z]{2,9} ){0,90}")
BASE = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


def test_graphs_sample_what_the_sampler_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures, replays and padded steps agree with the sampler. Kernels are batch-invariant."""
    llm, calls = LLM(device="cuda", precision="fp8", deterministic=True, **LIMITS), []
    prompts = [[(i * by) % 997 + 10 for i in range(20 + by)] for by in (3, 7, 11, 29, 37, 53, 64, 71, 90)]
    kinds = [
        BASE,
        replace(BASE, structured_outputs=LIST, ignore_eos=False),
        replace(BASE, temperature=1.0, seed=4),
        replace(BASE, temperature=0.6, seed=2**64 - 1, structured_outputs=WORDS, ignore_eos=False, min_tokens=30),
    ]
    mixed = [kinds[i % 4] for i in range(9)]
    # Masks are made only where the likeliest token may not come.
    greedy = [replace(each, temperature=0) for each in mixed]
    # Requests that ask for log-probabilities are left to the sampler.
    expected, likeliest = (
        [each.token_ids for each in llm.generate(prompts, [replace(each, logprobs=0) for each in params])]
        for params in (mixed, greedy)
    )
    inner = step.sample_tokens

    def count(*arguments: Any) -> Any:
        calls.append(1)
        return inner(*arguments)

    monkeypatch.setattr(step, "sample_tokens", count)
    for rows in (9, 4, 9, 1):
        for _ in range(2):
            assert [each.token_ids for each in llm.generate(prompts[:rows], mixed[:rows])] == expected[:rows]
            assert [each.token_ids for each in llm.generate(prompts[:rows], greedy[:rows])] == likeliest[:rows]
    for first in (1, 2, 3):  # greedy with a grammar, drawn, and drawn with a grammar
        for _ in range(2):
            own = [kinds[first]] * 2
            assert llm.generate(prompts[first : first + 5 : 4], own)[0].token_ids == expected[first]
    assert len(calls) <= 22, "only steps with prompts"
