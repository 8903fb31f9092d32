"""Graphs that drafts lack are captured while nobody asks. On a CPU the same steps run without CUDA graphs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.drafting.measured_drafts import MeasuredDrafts
from deepseek_v32.inference.engine.drafting.policy import FixedDrafts
from deepseek_v32.inference.engine.drafting.warm_up import WarmUp
from deepseek_v32.inference.engine.running import runner
from deepseek_v32.model.metadata import LayerCache
from deepseek_v32.model.synthetic.checkpoint import TINY, write_checkpoint

PAGES = 32
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
DRAWN = replace(GREEDY, temperature=1.0, seed=3)
PROMPTS = [[(i * step) % 997 for i in range(count)] for step, count in ((37, 30), (11, 50), (53, 150))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16), "fp32")
    return directory


@pytest.fixture
def llm(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> LLM:
    """With a choice of its own number of drafts, as `auto` is with trained weights."""
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    limits: dict[str, Any] = {"page_count": PAGES, "max_sequences": 4, "max_model_len": 256}
    llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", **limits)
    use(llm, MeasuredDrafts(2, ahead=True, must_capture=llm.engine.runner.must_capture))
    return llm


def use(llm: LLM, policy: MeasuredDrafts | FixedDrafts) -> None:
    llm.engine.scheduler.speculation.policy = policy


def run(warm_up: WarmUp) -> int:
    """All of its steps; how many there were."""
    steps = 0
    while warm_up.is_due:
        warm_up.step()
        steps += 1
    return steps


def entries(llm: LLM) -> list[torch.Tensor]:
    """Bytes of all pages that requests can have."""
    caches = llm.engine.runner.caches
    return [each[:PAGES].clone().view(torch.uint8) for cache in caches for each in (cache.latent, cache.index)]


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_server_that_waits_has_the_graphs_of_a_lone_answer(
    llm: LLM, params: SamplingParams, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a step; nobody's cache entries change, and no token counts as generated."""
    engine, graphs, captured = llm.engine, llm.engine.runner.graphs, list[int]()
    assert graphs is not None
    capture, warm_up = graphs.capture, WarmUp(engine)

    def counted(step: Any) -> Any:
        captured[-1] += 1
        return capture(step)

    assert not warm_up.is_due
    llm.generate(PROMPTS[:count], params)
    before = entries(llm)
    assert engine.runner.must_capture(1, 2)
    monkeypatch.setattr(graphs, "capture", counted)
    while warm_up.is_due:
        captured.append(0)
        warm_up.step()
    assert max(captured) == 1 and sum(captured) >= 4, captured
    assert not any(engine.runner.must_capture(1, drafts) for drafts in range(5))
    assert all(torch.equal(one, two) for one, two in zip(before, entries(llm), strict=True))
    assert engine.stats().generated_tokens == 12 * count


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_answers_and_drafts_stay_as_they_are(llm: LLM, checkpoint: Path, params: SamplingParams) -> None:
    expected = [each.token_ids for each in LLM(checkpoint, device="cpu", page_count=PAGES).generate(PROMPTS, params)]
    llm.generate(PROMPTS[:1], params)
    assert run(WarmUp(llm.engine)) > 10
    right = []
    for policy in (FixedDrafts(3), FixedDrafts(1), FixedDrafts(3)):
        use(llm, policy)
        before = sum(llm.stats().accepted_tokens)
        assert [each.token_ids for each in llm.generate(PROMPTS, params)] == expected
        right.append(sum(llm.stats().accepted_tokens) - before)
    assert right[0] == right[2]


def test_work_comes_first(llm: LLM) -> None:
    warm_up = WarmUp(llm.engine)
    llm.generate(PROMPTS[:1], GREEDY)
    request = llm.engine.add_request(PROMPTS[1], GREEDY)
    while request.output_count < 5:
        assert not warm_up.is_due
        llm.engine.step()
    llm.engine.abort(request.id)
    llm.engine.step()
    assert warm_up.is_due


def test_a_step_that_fails_is_the_last_one(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is another answer, which it does not concern."""
    warm_up = WarmUp(llm.engine)
    expected = llm.generate(PROMPTS[:1], GREEDY)[0].token_ids

    def fail(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine.runner, "run", fail)
        assert run(warm_up) == 1
    assert llm.generate(PROMPTS[:1], GREEDY)[0].token_ids == expected and warm_up.is_due


def test_its_steps_do_not_depend_on_what_the_memory_of_the_caches_held(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read the scratch page, of which no step has written more than some slots. Tokens chosen from NaN may be anything."""
    allocate, finite = runner.allocate, list[bool]()

    def stale(*arguments: Any) -> list[LayerCache]:
        caches = allocate(*arguments)
        for cache in caches:
            for each in (cache.latent, cache.index):
                each.view(torch.uint8).fill_(255)
        return caches

    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    monkeypatch.setattr(runner, "allocate", stale)
    llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", page_count=PAGES, max_model_len=256)
    llm.generate([[1, 2, 3]], replace(GREEDY, max_tokens=6))  # so short that nothing is selected, and every slot counts
    run_step = llm.engine.runner.run

    def run_checked(*arguments: Any) -> torch.Tensor:
        logits = run_step(*arguments)
        finite.append(bool(logits.isfinite().all()))
        return logits

    monkeypatch.setattr(llm.engine.runner, "run", run_checked)
    assert run(WarmUp(llm.engine)) > 1 and all(finite), finite


def test_graphs_that_never_come_are_not_waited_for(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.generate(PROMPTS[:1], GREEDY)
    monkeypatch.setattr(llm.engine.runner, "must_capture", lambda sequences, drafts: True)
    assert 10 < run(WarmUp(llm.engine)) < 50


def test_a_fixed_number_needs_none(checkpoint: Path) -> None:
    llm = LLM(checkpoint, device="cpu", speculative_tokens=2, page_count=PAGES)
    llm.generate(PROMPTS[:1], GREEDY)
    assert not WarmUp(llm.engine).is_due


def test_passes_that_are_sampled_are_captured_although_greedy_ones_are_given_up(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits are asked for by few requests, and each way of choosing tokens has graphs of its own."""
    graphs, runner = llm.engine.runner.graphs, llm.engine.runner
    assert graphs is not None
    capture = graphs.capture

    def refuse(step: Any) -> Any:
        if getattr(step, "__name__", "") == "run_greedily":
            raise RuntimeError("CUDA out of memory")
        return capture(step)

    monkeypatch.setattr(graphs, "capture", refuse)
    use(llm, FixedDrafts(2))
    llm.generate(PROMPTS[:1], GREEDY)
    assert not runner.must_capture(1, 2)
    reported = replace(GREEDY, logprobs=0)
    llm.generate(PROMPTS[:1], replace(reported, max_tokens=4))
    assert runner.must_capture(1, 2)
    llm.generate(PROMPTS[:1], reported)
    assert not runner.must_capture(1, 2)
