"""On a Hopper GPU, the tokens that decode graphs find are those that are sampled from their logits, with drafts and without."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from demo_model.dialogues import write

pytestmark = pytest.mark.gpu

GREEDY = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
LIMITS: dict[str, Any] = {"page_count": 600, "max_sequences": 16, "max_model_len": 4096}


@pytest.mark.parametrize("drafts", [0, 1, 4, "auto"])
def test_graphs_find_the_tokens_that_sampling_gives(drafts: int | Literal["auto"]) -> None:
    """Graphs and sampler agree. Kernels are batch-invariant, so that batches of any size have the same logits."""
    llm = LLM(DEMO, device="cuda", precision="fp8", speculative_tokens=drafts, deterministic=True, **LIMITS)
    prompts = []
    for seed in range(9):
        conversation = write(f"greedy {seed}", length=(300, 2500)[seed % 2], split="test", wording="train")
        prompts.append(llm.chat_token_ids(conversation.messages(until=len(conversation.turns) - 1)))
    reported = [each.token_ids for each in llm.generate(prompts, replace(GREEDY, logprobs=0))]
    for count in (1, 4, 9):  # captures, then replays; rows of padding; steps that are launched ahead
        for _ in range(2):
            assert [each.token_ids for each in llm.generate(prompts[:count], GREEDY)] == reported[:count]
    mixed = [replace(GREEDY, temperature=1.0, seed=7), *[GREEDY] * 4]  # all of these are sampled together
    assert [each.token_ids for each in llm.generate(prompts[:5], mixed)][1:] == reported[1:5]
    inspected = llm.generate(prompts, GREEDY, inspect=True)
    assert [each.token_ids for each in inspected] == reported
    if drafts and drafts != "auto":
        assert llm.stats().accepted_tokens[0] > 0.3 * llm.stats().drafted_tokens[0] > 0
