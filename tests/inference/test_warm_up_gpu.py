"""On a Hopper GPU, the graphs that an engine captures between answers are right."""

from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.drafting.policy import FixedDrafts
from deepseek_v32.inference.engine.drafting.warm_up import WarmUp
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.kernels.device import is_hopper
from demo_model.dialogues import write

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and is_hopper(torch.device("cuda", 0))), reason="needs a Hopper GPU"
    ),
]

LIMITS: dict[str, Any] = {"page_count": 600, "max_sequences": 16, "max_model_len": 4096}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_graphs_that_are_captured_between_answers_give_the_same(temperature: float) -> None:
    """With batch-invariant kernels, so that answers are those of plain decoding."""
    llm = LLM(DEMO, device="cuda", precision="fp8", speculative_tokens="auto", deterministic=True, **LIMITS)
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=60, ignore_eos=True)
    prompts = []
    for seed in range(2):
        conversation = write(f"idle {seed}", length=2500, split="test", wording="train")
        prompts.append(llm.chat_token_ids(conversation.messages(until=len(conversation.turns) - 1)))
    plain = LLM(DEMO, device="cuda", precision="fp8", speculative_tokens=0, deterministic=True, **LIMITS)
    expected = [each.token_ids for each in plain.generate(prompts, params)]
    engine, warm_up, graphs = llm.engine, WarmUp(llm.engine), llm.engine.runner.graphs
    assert graphs is not None and llm.generate(prompts[:1], params)[0].token_ids == expected[0]
    before, steps = graphs.captured, 0
    while warm_up.is_due:
        warm_up.step()
        steps += 1
    assert 3 < steps < 30 and graphs.captured > before
    assert not any(engine.runner.must_capture(1, drafts) for drafts in range(5))
    captured = graphs.captured
    for drafts in (1, 3):
        engine.scheduler.speculation.policy = FixedDrafts(drafts)
        # Another prompt: pages that plain decoding has left have no entries of the draft layer.
        assert llm.generate(prompts[1:], params)[0].token_ids == expected[1]
    assert graphs.captured == captured
    stats = llm.stats()
    assert stats.accepted_tokens[0] > 0.4 * stats.drafted_tokens[0] > 0
