"""On a Hopper GPU, the graphs that an engine captures before its first request are right, and answers wait for no others."""

from typing import Any

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from demo_model.dialogues import write

pytestmark = pytest.mark.gpu

LIMITS: dict[str, Any] = {"page_count": 600, "max_sequences": 16, "max_model_len": 4096}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_first_answers_have_graphs_and_the_tokens_of_plain_decoding(temperature: float) -> None:
    """With batch-invariant kernels, so that drafts change no bit."""
    plain = LLM(DEMO, device="cuda", precision="fp8", speculative_tokens=0, deterministic=True, **LIMITS)
    llm = LLM(DEMO, device="cuda", precision="fp8", speculative_tokens="auto", deterministic=True, **LIMITS)
    graphs = llm.engine.runner.graphs  # type: ignore[attr-defined]
    captured = graphs.captured
    assert captured > 10
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=60, ignore_eos=True)
    for seed in range(2):
        conversation = write(f"idle {seed}", length=2500, split="test", wording="train")
        prompt = llm.chat_token_ids(conversation.messages(until=len(conversation.turns) - 1))
        assert llm.generate(prompt, params)[0].token_ids == plain.generate(prompt, params)[0].token_ids
    assert graphs.captured == captured
    stats = llm.stats()
    assert stats.accepted_tokens[0] > 0.4 * stats.drafted_tokens[0] > 0
