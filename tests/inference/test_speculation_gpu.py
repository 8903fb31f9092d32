"""Speculative decoding on Hopper GPUs, with the demo's draft layer: the tokens of plain decoding, on one and on two."""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
import torch

from support.job import Job

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = pytest.mark.gpu
two_gpus = pytest.mark.skipif(COUNT < 2, reason="needs two GPUs on one machine")

# Greedy and seeded answers to prompts of different lengths that share their beginnings, in chunks, with so few pages that requests
# wait for each other's.
WORK = """
import json, sys
from dataclasses import replace
from deepseek_v32.inference import LLM, SamplingParams
from demo_model.dialogues import write

def main(precision, drafts, ranks=None, deterministic=False):
    limits = {"max_batch_tokens": 512, "page_count": 60, "max_model_len": 2048, "max_sequences": 8}
    options = {"speculative_tokens": drafts, "tensor_parallel_size": ranks, "deterministic": deterministic}
    with LLM(device="cuda", precision=precision, **options, **limits) as llm:
        prompts = []
        for seed in range(8):
            conversation = write(f"drafts {seed}", length=(300, 2500)[seed % 2], split="test", wording="train")
            prompts += [llm.chat_token_ids(conversation.messages(until=len(conversation.turns) - each)) for each in (1, 2)]
        prompts = [prompt for prompt in prompts if len(prompt) < 1800]
        greedy = SamplingParams(temperature=0, max_tokens=60, logprobs=1)
        sampled = SamplingParams(temperature=0.7, top_p=0.9, seed=3, max_tokens=40, presence_penalty=0.5, ignore_eos=True)
        completions = llm.generate(prompts, greedy) + llm.generate(prompts[:8], replace(sampled, logprobs=1))
        errors = [each.error for each in completions if each.finish_reason == "error"]
        assert not errors, errors  # such as a lack of memory because of other programs
        stats = llm.stats()
        graphs = getattr(llm.engine.runner, "_runner", llm.engine.runner).graphs
        return {
            "tokens": [each.token_ids for each in completions],
            "logprobs": [[token.logprob for token in each.logprobs] for each in completions],
            "drafted": stats.drafted_tokens,
            "accepted": stats.accepted_tokens,
            "graphs": 0 if graphs is None else graphs.captured,
        }
"""
PROGRAM = (
    WORK
    + "drafts = sys.argv[2] if sys.argv[2] == 'auto' else int(sys.argv[2])\n"
    + "print(json.dumps(main(sys.argv[1], drafts, deterministic=len(sys.argv) > 3)))"
)
WITH_CHILDREN = WORK + "print(json.dumps(main(sys.argv[1], int(sys.argv[2]), 2)))"


@cache
def one_gpu(precision: str, drafts: int) -> Any:
    """The results of one GPU, in a process of its own."""
    return ranks(1, precision, drafts)


def ranks(size: int, *arguments: object) -> Any:
    """The results of a given number of GPUs."""
    ended = Job(size, PROGRAM, *arguments).wait(120)
    assert not any(each.code for each in ended), ended
    return json.loads(ended[0].out.splitlines()[-1])


def assert_same(found: Any, plain: Any) -> None:
    """The tokens of plain decoding, with log-probabilities within 1e-5; and drafts of each place were right."""
    assert found["tokens"] == plain["tokens"]
    for one, two in zip(found["logprobs"], plain["logprobs"], strict=True):
        assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < 1e-5
    assert found["accepted"][0] > 0.4 * found["drafted"][0] and not sum(plain["drafted"])


@pytest.mark.parametrize("drafts", [1, 4])
def test_exact_answers_are_those_of_plain_decoding(drafts: int) -> None:
    found = one_gpu("exact", drafts)
    assert_same(found, one_gpu("exact", 0))
    assert found["accepted"][drafts - 1] and not any(found["drafted"][drafts:])


def test_graphs_draft_as_well_as_exact_precision_does() -> None:
    """In fp8, with decode graphs and the MTP layer's. Close calls differ between precisions, so most answers are compared."""
    found, exact, plain = one_gpu("fp8", 4), one_gpu("exact", 4), one_gpu("fp8", 0)
    assert found["graphs"] and plain["graphs"]
    for place in range(4):
        shares = [each["accepted"][place] / each["drafted"][place] for each in (found, exact)]
        assert abs(shares[0] - shares[1]) < 0.1, (place, shares)
    same = sum(one == two for one, two in zip(found["tokens"], plain["tokens"], strict=True))
    assert same > 0.6 * len(plain["tokens"]), same


@two_gpus
def test_two_ranks_over_nccl_speculate_as_one() -> None:
    assert_same(ranks(2, "exact", 3), one_gpu("exact", 0))


@two_gpus
@pytest.mark.parametrize("drafts", [1, 3, "auto"])
def test_graphs_of_two_ranks_draft_over_nccl(drafts: int | str) -> None:
    """In fp8 with batch-invariant kernels, answers with drafts have the same bits as answers without."""
    found, plain = ranks(2, "fp8", drafts, "deterministic"), ranks(2, "fp8", 0, "deterministic")
    assert found["graphs"] and plain["graphs"]
    assert (found["tokens"], found["logprobs"]) == (plain["tokens"], plain["logprobs"])
    assert 0.4 * found["drafted"][0] < found["accepted"][0]


@two_gpus
def test_graphs_of_two_ranks_draft_as_well_as_one() -> None:
    """Two ranks draft as well as one in fp8 with the fastest kernels."""
    found, one = ranks(2, "fp8", 2), one_gpu("fp8", 2)
    assert found["graphs"]
    for place in range(2):
        shares = [each["accepted"][place] / each["drafted"][place] for each in (found, one)]
        assert abs(shares[0] - shares[1]) < 0.1, (place, shares)
    same = sum(a == b for a, b in zip(found["tokens"], one["tokens"], strict=True))
    assert same > 0.6 * len(one["tokens"]), same


@two_gpus
def test_a_program_that_starts_its_ranks_itself_speculates_over_nccl() -> None:
    """LLM(tensor_parallel_size=2): the other rank is this program's child."""
    command = [sys.executable, "-c", WITH_CHILDREN, "exact", "3"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert_same(json.loads(ended.stdout.splitlines()[-1]), one_gpu("exact", 0))
