"""The steps that capture graphs before the first request, on a CPU, where a graph is the step itself."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.drafting.policy import TableDrafts
from deepseek_v32.inference.engine.running import runner as running
from deepseek_v32.inference.engine.running.captured_step import GraphMemory
from deepseek_v32.inference.engine.warm_up import capture_first_graphs
from tiny_model.checkpoint import TINY, write_checkpoint

LIMITS: dict[str, Any] = {"page_count": 12, "max_model_len": 200, "max_sequences": 4}
PROMPTS = [[5, 9, 2], [7] * 40, list(range(3, 90))]
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.7, seed=3, max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mtp")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2, num_nextn_predict_layers=1, index_topk=16))
    return directory


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Decode steps go to graphs; the list has the steps that have been captured."""
    steps, capture = list[Any](), GraphMemory.capture

    def counted(memory: GraphMemory, step: Callable[[], Any]) -> Callable[[], Any]:
        steps.append(step)
        return capture(memory, step)

    monkeypatch.setattr(running, "can_capture", lambda model: True)
    monkeypatch.setattr(GraphMemory, "capture", counted)
    return steps


def test_answers_wait_for_no_capture(checkpoint: Path, captured: list[Any]) -> None:
    """Answers one at a time, with drafts or without, wait for no capture and equal plain decoding's."""
    plain = LLM(checkpoint, device="cpu", speculative_tokens=0, decode_graphs=False, **LIMITS)
    llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", **LIMITS)
    before = len(captured)
    assert before > 20
    policy = llm.engine.scheduler.speculation.policy
    assert isinstance(policy, TableDrafts)
    for params in (GREEDY, DRAWN):
        for prompt in [*PROMPTS, [4, 8]]:
            assert llm.generate(prompt, params)[0].token_ids == plain.generate(prompt, params)[0].token_ids
    assert sum(llm.stats().drafted_tokens) and len(captured) == before


def test_they_change_no_page_that_a_request_may_have(checkpoint: Path, captured: list[Any]) -> None:
    llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", **LIMITS)
    caches = llm.engine.runner.caches  # type: ignore[attr-defined]
    for cache in caches:
        for entries in (cache.latent, cache.index):
            entries[: LIMITS["page_count"]] = 0.5
    before = [[entries.clone() for entries in (cache.latent, cache.index)] for cache in caches]
    policy, pages = llm.engine.scheduler.speculation.policy, LIMITS["page_count"]
    capture_first_graphs(llm.engine, llm.engine.runner.graphs)  # type: ignore[attr-defined]
    for cache, kept in zip(caches, before, strict=True):
        for entries, old in zip((cache.latent, cache.index), kept, strict=True):
            assert torch.equal(entries[:pages], old[:pages]) and entries.isfinite().all()
    stats = llm.stats()
    assert (stats.steps, stats.computed_tokens, sum(stats.drafted_tokens)) == (0, 0, 0)
    assert llm.engine.scheduler.speculation.policy is policy and not llm.engine.pool.used


@pytest.mark.parametrize("drafts", [0, 3])
def test_none_are_captured_for_a_number_that_the_user_gives(checkpoint: Path, captured: list[Any], drafts: int) -> None:
    LLM(checkpoint, device="cpu", speculative_tokens=drafts, **LIMITS)
    assert not captured


def test_an_engine_starts_although_they_fail(
    checkpoint: Path, captured: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When a GPU's memory is nearly full, graphs are captured when they are needed."""
    run = running.Runner.run

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(running.Runner, "run", fail)
    with caplog.at_level(logging.ERROR):
        llm = LLM(checkpoint, device="cpu", speculative_tokens="auto", **LIMITS)
    assert "capturing graphs failed" in caplog.text
    monkeypatch.setattr(running.Runner, "run", run)
    assert len(llm.generate(PROMPTS[0], GREEDY)[0].token_ids) == 20
