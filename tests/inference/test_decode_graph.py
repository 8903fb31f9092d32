"""Decode steps in buckets with padding give the same answers as plain steps. On a CPU the buckets run without CUDA graphs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import decode_graph, runner
from deepseek_v32.inference.engine.running.decode_graph import batch_buckets, can_capture, context_buckets
from deepseek_v32.inference.engine.running.inputs import DecodeInputs, StagedTokens
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from deepseek_v32.kernels import device as hardware
from deepseek_v32.kernels import implementations, registry
from deepseek_v32.model.config import ModelConfig, Precision
from deepseek_v32.model.parallel.shard import build_model
from support.preemption import preempt_every_other_step
from tiny_model.checkpoint import TINY, write_checkpoint

GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
PAGES = 32
# Lengths around index_topk = 64 and over page bounds. Five at once, so that a bucket of eight has three padding rows.
PROMPTS = [
    [(i * step) % 997 for i in range(count)] for step, count in ((37, 3), (11, 50), (53, 63), (7, 150), (29, 64))
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2), "fp32")
    return directory


def load(checkpoint: Path, in_buckets: bool) -> LLM:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "can_capture", lambda model: in_buckets)
        llm = LLM(checkpoint, device="cpu", page_count=PAGES, max_sequences=16, max_model_len=256)
    for cache in llm.engine.runner.caches:
        cache.latent.fill_(torch.nan)  # slots that no token has written must not be read
        cache.index.fill_(torch.nan)
    return llm


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    """The answers by plain steps."""
    return [c.token_ids for c in load(checkpoint, False).generate(PROMPTS, GREEDY)]


def release_in_place(scheduler: Scheduler, request: Request) -> None:
    """Do as Scheduler._release does, but empty the list of pages in place."""
    scheduler.pool.release(request.cache.pages)
    request.cache.pages.clear()
    request.cache.computed = request.cache.cached_pages = request.cache.prefix_id = 0


def admit_in_place(self: Scheduler, request: Request, admit: Callable[[Scheduler, Request], bool]) -> bool:
    pages = request.cache.pages
    admitted = admit(self, request)
    pages[:] = request.cache.pages
    request.cache.pages = pages
    return admitted


@pytest.mark.parametrize("preempt", [False, True], ids=["", "preempted"])
@pytest.mark.parametrize("same_list", [False, True], ids=["", "same-list"])
def test_buckets_give_the_same_answers(
    checkpoint: Path, expected: list[list[int]], preempt: bool, same_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`same_list`: a request keeps one list of pages over all its admissions. Only `CachePlace.admission` tells them apart."""
    if same_list:
        admit = Scheduler._admit
        monkeypatch.setattr(Scheduler, "_release", release_in_place)
        monkeypatch.setattr(Scheduler, "_admit", lambda self, request: admit_in_place(self, request, admit))
    llm = load(checkpoint, True)
    if preempt:
        preempt_every_other_step(llm)
    for count in (5, 1, 3, 5):  # rows become padding, and other requests use them again
        assert [c.token_ids for c in llm.generate(PROMPTS[-count:], GREEDY)] == expected[-count:]
    for inspect in (False, True):  # a short context: nothing to select, so nothing to record
        assert llm.generate(PROMPTS[0], GREEDY, inspect)[0].token_ids == expected[0]
    graphs = llm.engine.runner.graphs
    assert graphs is not None and {key[1:] for key in graphs._buckets} == {(64, False), (256, False)}


def test_buckets_report_the_same_selections(checkpoint: Path) -> None:
    expected, found = (load(checkpoint, buckets).generate(PROMPTS, GREEDY, inspect=True) for buckets in (False, True))
    for one, other in zip(expected, found, strict=True):
        assert one.token_ids == other.token_ids and one.selection and other.selection
        for a, b in zip(one.selection, other.selection, strict=True):
            for layer in range(2):
                assert a.positions(layer).tolist() == b.positions(layer).tolist()
                assert (layer in a.scores) == (layer in b.scores)
                if layer in a.scores:
                    assert torch.allclose(torch.tensor(a.scores[layer]), torch.tensor(b.scores[layer]), atol=1e-5)


def test_the_engine_uses_them_where_it_can(
    checkpoint: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    llm = LLM(checkpoint, device="cpu", page_count=PAGES)
    assert [c.token_ids for c in llm.generate(PROMPTS, GREEDY)] == expected
    assert isinstance(llm.engine.runner, Runner) and llm.engine.runner.graphs is not None
    assert llm.engine.runner.graphs.captured
    llm = LLM(checkpoint, device="cpu", page_count=PAGES, decode_graphs=False)
    assert isinstance(llm.engine.runner, Runner) and llm.engine.runner.graphs is None


@pytest.mark.parametrize("broken", [False, True], ids=["captured", "given-up"])
def test_a_step_is_launched_ahead_once_its_bucket_is_settled(
    checkpoint: Path, broken: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps are launched ahead if their bucket has a graph, or if two captures failed. Others wait for the earlier tokens."""
    llm, launched = load(checkpoint, True), list[tuple[int, bool]]()
    engine = llm.engine
    assert isinstance(engine.runner, Runner) and engine.runner.graphs is not None
    graphs, run = engine.runner.graphs, Runner.run
    if broken:
        monkeypatch.setattr(graphs, "capture", lambda step: 1 / 0)
    monkeypatch.setattr(
        Runner,
        "run",
        lambda self, batch, *given: (
            launched.append((batch.tokens, bool(batch.sampled_rows))),
            run(self, batch, *given),
        )[1],
    )
    for prompt, count in zip(PROMPTS[1:4], (20, 20, 12), strict=True):
        engine.add_request(prompt, replace(GREEDY, max_tokens=count))
    while engine.has_work:
        engine.step()
    first = 2 + broken  # steps of a bucket that is not launched ahead
    for rows, steps in ((3, 11), (2, 8)):
        ahead = [each for tokens, each in launched[1:] if tokens == rows]
        assert ahead[:first] == [False] * first and all(ahead[first:]), (rows, ahead)
        assert len(ahead) >= steps


def test_graphs_need_implementations_that_do_not_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Hopper GPU, one implementation that waits for the device rules graphs out, in any operation of a decode step."""
    monkeypatch.setattr(hardware, "is_hopper", lambda device: True)
    monkeypatch.setattr(implementations, "find_spec", lambda package: True)
    monkeypatch.setattr(registry, "choose_implementation", registry.choose_implementation.__wrapped__)
    monkeypatch.setattr(decode_graph, "choose_implementation", registry.choose_implementation)
    config = replace(TINY, num_hidden_layers=2, kv_lora_rank=512, qk_rope_head_dim=64, weight_block=(128, 128))

    def captured(
        config: ModelConfig, backend: str = "auto", precision: Precision = "fp8", device: str = "cuda"
    ) -> bool:
        model = build_model(config, precision, backend, "cpu")
        model.compute = replace(model.compute, device=torch.device(device))
        return can_capture(model)

    assert captured(config) and captured(config, "tile") and captured(config, "cuda")
    assert not captured(config, "reference")
    assert not captured(replace(config, kv_lora_rank=128))  # a width that only the reference serves
    assert not captured(config, precision="bf16") and not captured(config, device="cpu")
    for operation in build_model(config, "fp8", "auto", "cpu").decode_operations():
        with monkeypatch.context() as patch:
            only_reference = tuple(one for one in implementations.OPERATIONS[operation] if one.backend == "reference")
            patch.setitem(implementations.OPERATIONS, operation, only_reference)
            assert not captured(config), operation


def test_the_scratch_page_is_never_handed_out(checkpoint: Path) -> None:
    llm = load(checkpoint, True)
    cache = llm.engine.runner.caches[0].latent
    llm.generate(PROMPTS, GREEDY)
    assert not cache[PAGES].isnan().all()  # padding was written there
    assert llm.engine.pool.page_count == PAGES


@pytest.mark.parametrize("most", [1, 3, 8, 100, 256, 700])
def test_buckets_hold_every_batch(most: int) -> None:
    sizes = batch_buckets(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most
    assert all(b - a <= 64 for a, b in pairwise(sizes))  # a page has 64 slots for padding


@pytest.mark.parametrize("longest", [64, 100, 4096, 4097, 163840])
def test_contexts_hold_every_length(longest: int) -> None:
    sizes = context_buckets(64, longest)
    assert sizes == sorted(set(sizes)) and sizes[-1] == longest


def test_inputs_that_were_filled_in_part_are_padded_in_the_next_step() -> None:
    """Otherwise their rows would write into pages that may be another request's by then."""
    inputs = DecodeInputs(4, 128, 9, StagedTokens(4, torch.device("cpu")))
    requests = [Request(id, (5,) * 70, SamplingParams(), 9, 0) for id in range(4)]
    for request in requests:
        request.cache.pages, request.cache.admission, request.cache.computed = (
            [2 * request.id, 2 * request.id + 1],
            1,
            69,
        )
    requests[3].cache.pages = []
    with pytest.raises(IndexError):
        inputs.fill(Batch.of([(request, 1) for request in requests]))
    inputs.fill(Batch.of([(requests[0], 1)]))
    metadata = inputs.read().metadata
    assert metadata.slots.tolist() == [64 + 5, 9 * 64 + 1, 9 * 64 + 2, 9 * 64 + 3]
    assert metadata.block_table[:, 0].tolist() == [0, 9, 9, 9] and metadata.lengths.tolist() == [70, 1, 1, 1]
