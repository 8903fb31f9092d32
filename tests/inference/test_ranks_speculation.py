"""Speculative decoding on several ranks, over gloo: the tokens of one process without drafts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.model.synthetic.checkpoint import TINY, write_checkpoint
from support.forked_ranks import run_ranks

pytestmark = pytest.mark.heavy
CONFIG = replace(
    TINY,
    vocab_size=64,  # so small that some drafts of an untrained layer are right
    num_attention_heads=8,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    moe_intermediate_size=512,
    num_hidden_layers=2,
    index_topk=32,
    num_nextn_predict_layers=1,
)
# Prompts in chunks, so few pages that requests are preempted, and a reused prefix.
WORK = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams

def main(path, drafts):
    limits = {"max_batch_tokens": 64, "page_count": 7, "max_model_len": 320}
    llm = LLM(path, device="cpu", precision="exact", speculative_tokens=drafts, **limits)
    prompts = [[(i * step + 5) % 64 for i in range(count)] for step, count in ((37, 3), (11, 50), (53, 62), (7, 200))]
    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    random = SamplingParams(temperature=0.7, seed=3, max_tokens=16, top_p=0.9, presence_penalty=0.5, ignore_eos=True)
    answers = [each.token_ids for each in llm.generate(prompts, greedy)]
    answers += [each.token_ids for each in llm.generate(prompts[2:], random)]
    stats = llm.stats()
    return answers, sum(stats.drafted_tokens), sum(stats.accepted_tokens), stats.preemptions
"""


@pytest.mark.parametrize("size", [2])
def test_ranks_give_the_tokens_of_plain_decoding(size: int, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CONFIG, "fp8", seed=1)
    namespace: dict[str, Any] = {}
    exec(WORK, namespace)
    plain, none, _, _ = namespace["main"](tmp_path, 0)
    ended = run_ranks(size, WORK + "print(json.dumps(main(sys.argv[1], 3)))", tmp_path)
    assert [each.code for each in ended] == [0] * size, "".join(each.err for each in ended)
    found, drafted, accepted, preempted = json.loads(ended[0].out)
    assert found == plain
    assert none == 0 and 0 < accepted < drafted and preempted, (drafted, accepted, preempted)
