"""Sequences divided among ranks (`attention="data"`), over gloo: one process's answers, and n times the tokens in caches."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference.config import EngineConfig, Limits
from deepseek_v32.inference.distributed.model_source import ModelSource
from deepseek_v32.inference.engine.request_maker import RequestMaker
from deepseek_v32.model.selection_policy import SelectionPolicy
from support.forked_ranks import run_program, run_ranks
from support.tiny import DIVISIBLE, ODD, tiny_checkpoint
from tiny_model.checkpoint import TINY, write_checkpoint

# With ODD, the dense MLP is whole on every rank, and the shared experts are on rank 0.
CONFIGS = {"divisible": DIVISIBLE, "odd": ODD}
# Every sum over ranks has one term, so that nothing is rounded.
CONFIGS["one term"] = replace(
    CONFIGS["divisible"], num_experts_per_tok=1, n_shared_experts=0, intermediate_size=200, vocab_size=515
)
# Prompts in chunks around index_topk, a shared prefix, so few pages that requests are preempted, steps in which ranks have no
# sequence, the selected positions, and teacher-forced logits.
WORK = """
import json, sys
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.model import prefill_form

def main(path, precision, **more):
    if precision == "fp8":  # the only form whose bits do not depend on the number of tokens
        prefill_form.PrefillForm.is_multi_head = lambda *_: False
    more |= {"max_batch_tokens": 96, "max_sequences": 7}
    llm = LLM(path, device="cpu", precision=precision, page_count=6, max_model_len=320, **more)
    vocabulary, engine = llm.config.vocab_size, llm.engine
    def prompt(step, count):
        return [(i * step + 5) % vocabulary for i in range(count)]
    shared = prompt(7, 150)
    prompts = [prompt(37, 3), prompt(11, 50), prompt(53, 62), prompt(7, 200), *(shared + prompt(step, 30) for step in range(2, 9))]
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    long = SamplingParams(temperature=0, max_tokens=70, ignore_eos=True)
    random = SamplingParams(temperature=1, seed=3, max_tokens=4, ignore_eos=True)
    answers = [each.token_ids for each in llm.generate(prompts[:1], greedy)]  # other ranks have no sequence
    requests, used, running = [engine.add_request(each, long) for each in prompts], 0, 0
    while engine.has_work:
        engine.step()
        stats = llm.stats()
        used, running = max(used, stats.pages_used), max(running, stats.running)
        assert stats.pages_used + stats.pages_free + stats.pages_cached == 6 * len(engine.scheduler.pools)
    answers += [each.output for each in requests]
    answers += [each.token_ids for each in llm.generate(prompts[1:5], random, inspect=True)]
    inspected = [each.selection for each in llm.generate(prompts[:4], greedy, inspect=True)]
    inspected.append(llm.score_answer(prompts[3][:150], prompts[3][150:]).selections)
    stats = llm.stats()
    return {
        "answers": answers,
        "selected": [choice.positions(1).tolist() for each in inspected for choice in each],
        "scores": [float(choice.scores[1].sum()) for each in inspected for choice in each if 1 in choice.scores],
        "best": llm.logits(prompts[3], chunk=50).argmax(1).tolist(),
    }, {"used": used, "running": running, "preemptions": stats.preemptions, "cached": stats.cached_tokens}
"""
# Decode steps in buckets, as on GPUs, of which later ones are launched before the host knows their tokens. Few rows, so that some
# steps with many sequences on one rank fit none.
BUCKETS = """
from deepseek_v32.inference.engine.running import decode_graph, runner

runner.can_capture, decode_graph.batch_buckets = lambda model: True, lambda most: [1, 2]
run, fits, in_buckets, unfit = decode_graph.DecodeGraphs.run, decode_graph.DecodeGraphs.fits, 0, 0

def counted(graphs, batch, *more):
    global in_buckets
    in_buckets += bool(batch.sampled_rows)
    return run(graphs, batch, *more)

def asked(graphs, batch):
    global unfit
    unfit += not fits(graphs, batch)
    return fits(graphs, batch)

decode_graph.DecodeGraphs.run, decode_graph.DecodeGraphs.fits = counted, asked
"""
ONE_PROCESS = WORK + "print(json.dumps(main(*sys.argv[1:])))"
ON_RANKS = WORK + "print(json.dumps(main(*sys.argv[1:], attention='data')))"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoints")
    for name, config in CONFIGS.items():
        write_checkpoint(directory / name, config, "bf16" if name == "odd" else "fp8", seed=1)
    return directory


@pytest.mark.parametrize(
    ("case", "size", "precision", "buckets"),
    [
        ("divisible", 2, "exact", True),
        ("odd", 4, "exact", False),
        ("one term", 2, "fp8", True),
    ],
)
@pytest.mark.heavy
def test_ranks_answer_as_one_process_and_hold_more(
    checkpoints: Path, case: str, size: int, precision: str, buckets: bool
) -> None:
    one = run_program(ONE_PROCESS, checkpoints / case, precision)
    assert one.code == 0, one.err
    expected, of_one = json.loads(one.out)
    expected["scores"] = pytest.approx(expected["scores"], rel=1e-4)
    program = BUCKETS + ON_RANKS + f"; assert in_buckets > 10 and (unfit or {size} > 2)" if buckets else ON_RANKS
    ended = run_ranks(size, program, checkpoints / case, precision)
    assert [each.code for each in ended] == [0] * size, "".join(each.err for each in ended)
    found, counts = json.loads(ended[0].out)
    assert found == expected and len(found["scores"]) > 9
    assert of_one["used"] <= 6 and counts["used"] > 6 * (size - 1) and counts["running"] > of_one["running"]
    assert counts["preemptions"] > 0 and counts["cached"] > 0


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"deterministic": True}, "None with deterministic"),
        ({"offload": "experts"}, "None with offload"),
        ({"check_cache": True}, "None with check_cache"),
        ({"speculative_tokens": 2}, "None with speculative_tokens"),
    ],
)
def test_what_does_not_go_with_it_is_refused(chosen: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=f"attention is 'data'; expected {expected}"):
        EngineConfig(attention="data", **chosen)
    assert EngineConfig(attention="data", speculative_tokens=0).speculative_tokens == 0


def test_experiments_with_the_selection_are_refused() -> None:
    """Each rank would know only how much of its own sequences' attention mass was selected."""
    requests = RequestMaker(TINY, Limits(64, 64, 4, 4, True, data_ranks=2))
    with pytest.raises(ValueError, match="policy is given; expected None where attention='data'"):
        requests.from_tokens([1, 2], policy=SelectionPolicy(selector="window"))
    assert requests.from_tokens([1, 2]).policy is None


def test_it_needs_several_ranks_and_the_weights_of_all_heads(tmp_path: Path) -> None:
    chosen = EngineConfig(device="cpu", attention="data")
    path = tiny_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="attention is 'data'; expected None on one rank"):
        ModelSource.resolve(path, chosen, 1)
    source, drafts = ModelSource.resolve(path, chosen, 2).with_drafts("auto")
    assert (source.whole_attention, source.divides_sequences, drafts) == (True, True, 0)
    next(path.glob("*.safetensors")).rename(path / "model0-mp2.safetensors")
    with pytest.raises(ValueError, match="attention is 'data'; expected None for a checkpoint converted for ranks"):
        ModelSource.resolve(path, chosen, 2)
