"""Speculative decoding on several ranks, over gloo: the tokens of one process without drafts; why fp8 differs from one rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.forked_ranks import run_ranks
from support.tiny import DIVISIBLE
from tiny_model.checkpoint import write_checkpoint

pytestmark = pytest.mark.heavy
# The vocabulary is so small that some drafts of an untrained layer are right.
CONFIG = replace(DIVISIBLE, vocab_size=64, num_nextn_predict_layers=1)
# Prompts in chunks, so few pages that requests are preempted, and a reused prefix.
WORK = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.drafting.drafter import Drafter

def main(path, drafts):
    made, draft = [], Drafter.draft
    def watched(*given):
        draft(*given)
        made.append(given[-1].tolist())
    Drafter.draft = watched
    limits = {"max_batch_tokens": 64, "page_count": 7, "max_model_len": 320}
    llm = LLM(path, device="cpu", precision="exact", speculative_tokens=drafts, **limits)
    prompts = [[(i * step + 5) % 64 for i in range(count)] for step, count in ((37, 3), (11, 50), (53, 62), (7, 200))]
    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    random = SamplingParams(temperature=0.7, seed=3, max_tokens=16, top_p=0.9, presence_penalty=0.5, ignore_eos=True)
    answers = [each.token_ids for each in llm.generate(prompts, greedy)]
    answers += [each.token_ids for each in llm.generate(prompts[2:], random)]
    stats = llm.stats()
    Drafter.draft = draft
    return answers, sum(stats.drafted_tokens), sum(stats.accepted_tokens), stats.preemptions, made
"""

# fp8 with batch-invariant kernels. `sums` is where one rank writes the outputs of its sublayers, in the order of calls; several
# ranks, if it is given, go on with those instead of their own sums.
FP8 = """
import json, sys
import torch
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.model.block import Block
from deepseek_v32.model.moe import MixtureOfExperts
from deepseek_v32.model.parallel.rows import ReplicatedRows

def main(path, drafts, sums="", ranks=1):
    taken = torch.load(sums) if sums and ranks > 1 else []
    errors, added = [0.0], ReplicatedRows.sum

    def swapped(module, inputs, output):
        if ranks == 1:
            taken.append(output.clone())
            return None
        other = taken.pop(0)
        errors.append(float((output.float() - other.float()).norm() / other.float().norm()))
        return other

    if sums and ranks > 1:  # on the ranks that follow, too: they do not get beyond the next line
        ReplicatedRows.sum = lambda rows, part: swapped(None, None, added(rows, part))
    limits = {"max_batch_tokens": 64, "page_count": 12, "max_model_len": 320}
    llm = LLM(path, device="cpu", precision="fp8", deterministic=True, speculative_tokens=drafts, **limits)
    assert llm.tensor_parallel_size == ranks
    if sums and ranks == 1:
        for block in llm.model.modules():
            if isinstance(block, Block):
                if isinstance(block.mlp, MixtureOfExperts):
                    block.mlp.partial = True  # its sum is not left to the next norm
                block.self_attn.register_forward_hook(swapped)
                block.mlp.register_forward_hook(swapped)
    prompts = [[(i * step + 5) % 64 for i in range(count)] for step, count in ((37, 3), (11, 40), (7, 80))]
    greedy = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, logprobs=1)
    random = SamplingParams(temperature=0.7, seed=3, max_tokens=6, presence_penalty=0.5, ignore_eos=True, logprobs=1)
    answers = llm.generate(prompts, greedy) + llm.generate(prompts[2:], random)
    if sums and ranks == 1:
        torch.save(taken, sums)
    assert not [each.error for each in answers if each.error]
    stats = llm.stats()
    return {
        "answers": [[each.token_ids, [token.logprob for token in each.logprobs]] for each in answers],
        "accepted": sum(stats.accepted_tokens),
        "left": len(taken),
        "largest": max(errors),
    }
"""
# Each rank prints what it has captured, also one that ends inside of LLM().
AUTO = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.running import decode_graph, runner

captured, result = [], {}
capture = decode_graph.GraphMemory.capture

def counted(memory, step):
    work = getattr(step, "func", step).__qualname__
    if work != "_choose":  # only rank 0 samples
        captured.append([work, getattr(step, "args", (0,))[0].batch if "DecodeGraphs" in work else 0])
    return capture(memory, step)

decode_graph.GraphMemory.capture = counted
runner.can_capture = lambda model: True

def main(path):
    limits = {"page_count": 16, "max_model_len": 320, "max_sequences": 2}
    llm = LLM(path, device="cpu", precision="exact", speculative_tokens="auto", **limits)
    result["first"] = len(captured)
    prompts = [[(i * 7 + shift) % 64 for i in range(90)] for shift in range(4)]
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    result["answers"] = [each.token_ids for each in llm.generate(prompts, greedy)]
    result["drafted"] = sum(llm.stats().drafted_tokens)

try:
    main(sys.argv[1])
finally:
    print(json.dumps([captured, result]))
"""
ON_RANKS = FP8 + "print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], 2)))"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ranks")
    write_checkpoint(directory, CONFIG, "fp8", seed=1)
    return directory


def on_two_ranks(*arguments: object) -> Any:
    ended = run_ranks(2, ON_RANKS, *arguments)
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)
    return json.loads(ended[0].out)


def test_fp8_on_two_ranks_differs_from_one_only_by_its_sums(checkpoint: Path, tmp_path: Path) -> None:
    """With one rank's sums in place of their own, two ranks give its bits, drafts included. With their own they do not, but those
    of two ranks without drafts."""
    namespace: dict[str, Any] = {}
    exec(FP8, namespace)
    sums = tmp_path / "sums"
    one = namespace["main"](checkpoint, 3, sums)
    swapped = on_two_ranks(checkpoint, 3, sums)
    assert swapped["answers"] == one["answers"] and swapped["left"] == 0 and swapped["accepted"] == one["accepted"] > 0
    assert 0 < swapped["largest"] < 0.01, "bf16 and FP8 round the parts of a sum, and no more"
    own, plain = on_two_ranks(checkpoint, 3, ""), on_two_ranks(checkpoint, 0, "")
    assert own["answers"] != one["answers"], "the sums are the same: nothing was tried"
    assert own["answers"] == plain["answers"] and own["accepted"] > plain["accepted"] == 0


def test_ranks_give_the_tokens_of_plain_decoding(checkpoint: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(WORK, namespace)
    plain, none, *_ = namespace["main"](checkpoint, 0)
    of_one = namespace["main"](checkpoint, 3)
    ended = run_ranks(2, WORK + "print(json.dumps(main(sys.argv[1], 3)))", checkpoint)
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)
    found, drafted, accepted, preempted, made = json.loads(ended[0].out)
    assert found == plain and made == of_one[-1] and len(made) > 20
    assert none == 0 and 0 < accepted < drafted and preempted, (drafted, accepted, preempted)


def test_ranks_capture_and_draft_the_same_with_auto(checkpoint: Path) -> None:
    """Before the first request and after it."""
    ended = run_ranks(2, AUTO, checkpoint)
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)
    (captured, found), (others, _) = [json.loads(each.out) for each in ended]
    assert captured == others and found["first"] > 20, (captured, others, found)
    namespace: dict[str, Any] = {}
    exec(WORK, namespace)
    prompts = [[(i * 7 + shift) % 64 for i in range(90)] for shift in range(4)]
    plain = namespace["LLM"](checkpoint, device="cpu", precision="exact", speculative_tokens=0, page_count=16)
    greedy = namespace["SamplingParams"](temperature=0, max_tokens=12, ignore_eos=True)
    assert found["answers"] == [each.token_ids for each in plain.generate(prompts, greedy)]
    assert found["drafted"] > 0
