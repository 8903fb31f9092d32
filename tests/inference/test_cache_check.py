"""--check-cache: every kind of wrong cache entry ends its request with an error and a report, and nothing else does."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, Completion, SamplingParams
from deepseek_v32.inference.cache_check.check import CacheCheck
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import runner as runner_module
from deepseek_v32.inference.engine.running.scoring import score
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.model import attention, indexer
from deepseek_v32.model.metadata import PAGE_SIZE
from support.pages import check_pool
from support.preemption import preempt_every_other_step
from tiny_model.checkpoint import TINY, write_checkpoint

PAGES = 40
ANSWER = 56  # tokens, in which every full page of the prompts is hashed, also without graphs
GREEDY = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True)
BRIEF = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
PROMPTS = [[(i * step) % 997 for i in range(count)] for step, count in ((7, 130), (11, 70), (3, 150))]


def on_gpu() -> bool:
    return torch.cuda.is_available() and is_hopper(torch.device("cuda", 0))


# eager: steps one by one. buckets: decodes as in CUDA graphs, launched ahead, on the CPU. On a GPU: the demo with CUDA graphs and
# steps launched ahead, and without.
MODES = ["eager", "buckets"]
if on_gpu():
    MODES += [pytest.param(name, marks=pytest.mark.gpu) for name in ("graphs", "gpu")]  # type: ignore[misc]


SIZES: dict[str, Any] = {"page_count": PAGES, "max_sequences": 8, "max_model_len": 256, "max_batch_tokens": 256}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, replace(TINY, num_hidden_layers=2), "fp32")
    return directory


@pytest.fixture(scope="module")
def on_cpu(checkpoint: Path) -> LLM:
    return LLM(checkpoint, device="cpu", **SIZES)


@pytest.fixture(scope="module")
def on_device() -> LLM:
    return LLM(DEMO, device="cuda", precision="fp8", **SIZES)


@pytest.fixture(params=MODES)
def plain(request: pytest.FixtureRequest) -> LLM:
    """An LLM without checks."""
    model: LLM = request.getfixturevalue("on_device" if request.param in ("graphs", "gpu") else "on_cpu")
    return around(model, request.param)


@pytest.fixture
def llm(plain: LLM, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LLM:
    """An LLM with checks around the same model. Its reports go to tmp_path/reports."""
    (tmp_path / "reports").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "reports"))
    checked = around(plain, request.node.callspec.params["plain"], check_cache=True)
    for cache in caches(checked):  # memory that no token has written may hold NaN, which would end a request first
        cache.latent.zero_()
        cache.index.zero_()
    return checked


def around(model: LLM, mode: str, **options: Any) -> LLM:
    with pytest.MonkeyPatch.context() as patch:
        if mode != "graphs":
            patch.setattr(runner_module, "can_capture", lambda model: mode == "buckets")
        return LLM.from_model(
            model.model, model.config, precision=model.precision, device=str(model.device), **SIZES, **options
        )


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "reports").iterdir())]


def run(llm: LLM, *requests: Request, after: int = 0, fault: Callable[[], object] | None = None) -> list[Completion]:
    """The requests' completions. `fault` happens when each has `after` tokens more."""
    ends: dict[int, Completion] = {}
    for request in requests:
        llm.engine.queue(request)
    while len(ends) < len(requests):
        if fault is not None and all(request.output_count >= after for request in requests):
            fault()
            fault = None
        ends |= {d.request_id: d.completion for d in llm.engine.step() if d.completion is not None}
    check_pool(llm.engine.pool)
    assert llm.engine.pool.used == 0
    return [ends[request.id] for request in requests]


def flip_byte(cache: torch.Tensor, page: int, number: int = 77) -> None:
    cache[page].view(-1).view(torch.uint8)[number] ^= 4


def check_of(llm: LLM) -> CacheCheck:
    [check] = llm.engine.runner.observers
    assert isinstance(check, CacheCheck)
    return check


def swap_pages(llm: LLM, one: int, other: int) -> None:
    """All bytes of two pages, in every layer."""
    for cache in llm.engine.runner.caches:
        for entries in (cache.latent, cache.index):
            entries[[one, other]] = entries[[other, one]].clone()


def swap_everything(llm: LLM, one: int, other: int) -> None:
    """Swap two pages' entries, stamps and hashes, as if the pages had each other's numbers."""
    swap_pages(llm, one, other)
    stamps = check_of(llm).stamps
    both = [one, other]
    stamps.hashes[:, :, both] = stamps.hashes[:, :, both[::-1]].clone()
    chains = stamps.chains.view(-1, PAGE_SIZE, 2)
    chains[both] = chains[both[::-1]].clone()
    columns = stamps.columns.view(*stamps.columns.shape[:2], -1, PAGE_SIZE)
    columns[:, :, both] = columns[:, :, both[::-1]].clone()


def caches(llm: LLM) -> Any:
    return llm.engine.runner.caches


# What goes wrong while requests a (of PROMPTS[0]) and b (PROMPTS[1]) decode, and whose entries it hits.
WHILE_DECODING: dict[str, tuple[Callable[[LLM, Request, Request], object], str]] = {
    "byte of a latent": (lambda llm, a, b: flip_byte(caches(llm)[1].latent, a.cache.pages[0]), "a"),
    "byte of an index key": (lambda llm, a, b: flip_byte(caches(llm)[0].index, a.cache.pages[1]), "a"),
    "bytes of two pages swapped": (lambda llm, a, b: swap_pages(llm, a.cache.pages[1], b.cache.pages[0]), "ab"),
    "two pages swapped": (lambda llm, a, b: swap_everything(llm, a.cache.pages[1], b.cache.pages[0]), "ab"),
    "own pages swapped": (lambda llm, a, b: swap_everything(llm, a.cache.pages[0], a.cache.pages[1]), "a"),
    "all pages taken by another": (
        lambda llm, a, b: [
            swap_everything(llm, x, y) for x, y in zip(a.cache.pages[:2], b.cache.pages[:2], strict=True)
        ],
        "ab",
    ),
}


@pytest.mark.parametrize("name", WHILE_DECODING)
def test_entries_that_change_while_requests_decode(name: str, llm: LLM, tmp_path: Path) -> None:
    """The requests concerned end with an error, and nothing of their pages is reused. The other one is not touched."""
    fault, hit = WHILE_DECODING[name]
    a = llm.engine.requests.from_tokens(PROMPTS[0], GREEDY)
    b = llm.engine.requests.from_tokens(PROMPTS[1], GREEDY if "b" in hit else BRIEF)
    completions = dict(zip("ab", run(llm, a, b, after=5, fault=lambda: fault(llm, a, b)), strict=True))
    for which, completion in completions.items():
        if which not in hit:
            assert completion.finish_reason == "length", completion.error
            continue
        assert completion.finish_reason == "error" and len(completion.token_ids) < ANSWER
        assert completion.error is not None and "the cache check failed at position" in completion.error
    found = reports(tmp_path)
    assert sorted(report["request"] for report in found) == [dict(a=a.id, b=b.id)[which] for which in hit]
    for report, completion in zip(found, [completions[which] for which in hit], strict=False):
        assert report["expected"] != report["found"] and str(tmp_path / "reports") in str(completion.error)
        assert (
            report["tokens_of_page"] and report["slot"] == report["page"] * PAGE_SIZE + report["position"] % PAGE_SIZE
        )
    for which, prompt in zip("ab", PROMPTS, strict=False):
        again = llm.generate(prompt, SHORT)[0]
        assert again.finish_reason == "length" and (again.usage.cached_tokens > 0) == (which not in hit)


def stamps_of(llm: LLM, layer: int, kind: int) -> torch.Tensor:
    """int32 [slots]"""
    columns: torch.Tensor = check_of(llm).stamps.columns
    return columns[layer, kind]


CACHED: dict[str, Callable[[LLM, list[int]], object]] = {
    "byte of a latent": lambda llm, pages: flip_byte(caches(llm)[0].latent, pages[1], 0),
    "last byte of an index page": lambda llm, pages: flip_byte(caches(llm)[1].index, pages[0], -1),
    "stamp of a latent": lambda llm, pages: stamps_of(llm, 1, 0)[pages[0] * PAGE_SIZE + 9].zero_(),
    "stamp of an index key": lambda llm, pages: stamps_of(llm, 0, 1)[pages[1] * PAGE_SIZE].zero_(),
    "two pages swapped": lambda llm, pages: swap_everything(llm, pages[0], pages[1]),
    "pages of nobody": lambda llm, pages: [
        swap_everything(llm, page, other) for page, other in zip(pages, range(PAGES - 2, PAGES), strict=True)
    ],
}


@pytest.mark.parametrize("name", CACHED)
def test_reused_pages_are_verified_before_their_first_token(name: str, llm: LLM, tmp_path: Path) -> None:
    prompt = PROMPTS[2]
    llm.generate(prompt, SHORT)
    pages, *_ = llm.engine.pool.match(prompt)
    llm.engine.pool.release(pages)
    assert len(pages) == 2
    CACHED[name](llm, pages)
    [completion] = llm.generate([*prompt, 5], GREEDY)
    assert completion.finish_reason == "error" and completion.token_ids == []
    assert "the cache check failed at position" in str(completion.error)
    [report] = reports(tmp_path)
    assert report["page"] == pages[report["position"] // PAGE_SIZE]
    [completion] = llm.generate([*prompt, 5], SHORT)  # computed anew
    assert completion.finish_reason == "length" and completion.usage.cached_tokens == 0


def test_a_page_that_is_registered_too_early(llm: LLM) -> None:
    """A page is registered although no step writes its entries."""
    pool, prompt = llm.engine.pool, PROMPTS[2]
    pages = pool.allocate(2)
    first = pool.register(pages[0], 0, prompt[:64])
    pool.register(pages[1], first, prompt[64:128])
    pool.release(pages)
    [completion] = llm.generate(prompt, SHORT)
    assert completion.finish_reason == "error" and completion.usage.cached_tokens == 128


def test_a_page_that_two_requests_hold(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool gives a page away twice; the second request writes over the first one's entries."""
    a, b = (llm.engine.requests.from_tokens(prompt, GREEDY) for prompt in PROMPTS[:2])
    llm.engine.queue(a)
    while a.output_count < 4:
        llm.engine.step()
    pool = llm.engine.pool
    pool.reuse = False  # a page can be registered once
    allocate = pool.allocate

    def give_twice(count: int) -> list[int]:
        pages = allocate(count)
        if count > 1:
            pool._references[a.cache.pages[0]] += 1
            pool.release(pages[:1])
            pages[0] = a.cache.pages[0]
        return pages

    monkeypatch.setattr(pool, "allocate", give_twice)
    llm.engine.queue(b)
    ends: dict[int, Completion] = {}
    while len(ends) < 2:
        ends |= {d.request_id: d.completion for d in llm.engine.step() if d.completion is not None}
    assert ends[a.id].finish_reason == "error" and "the cache check failed" in str(ends[a.id].error)


@pytest.mark.parametrize("which", ["latent", "index key"])
@pytest.mark.parametrize("when", ["prompt", "decode"])
def test_a_launch_that_is_skipped_leaves_a_stale_entry(
    which: str, when: str, llm: LLM, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One launch of one layer is skipped. The page held other entries before, so a stale entry looks valid."""
    if llm.device.type == "cuda" and (when == "decode" or hasattr(attention, "norm_and_cache")):
        pytest.skip("a launch in a graph cannot be left out once, and a fused one not for one of the caches")
    module, name = {"latent": (attention, "write_latent_cache"), "index key": (indexer, "write_index_cache")}[which]
    write, calls = getattr(module, name), [0]

    def skip_one(first: torch.Tensor, *arguments: Any, **options: Any) -> None:
        if (len(first) > 1) == (when == "prompt"):
            calls[0] += 1
            if calls[0] == 2:  # the second layer's
                return
        write(first, *arguments, **options)

    llm.generate([[(i * 5) % 991 for i in range(250)]] * 2, SHORT)  # most pages hold something
    monkeypatch.setattr(module, name, skip_one)
    [completion] = llm.generate(PROMPTS[1], GREEDY)
    assert calls[0] >= 2 and completion.finish_reason == "error"
    assert len(completion.token_ids) < (2 if when == "prompt" else 20)
    [report] = reports(tmp_path)
    assert report["cache"] == which.split()[0] and report["layer"] == 1
    assert f"of its {which} in layer 1" in str(completion.error)


def test_a_wrong_entry_of_the_block_table(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the device's block table is wrong: the host's list of pages is right."""
    a, b = (llm.engine.requests.from_tokens(prompt, GREEDY) for prompt in PROMPTS[:2])
    graphs = llm.engine.runner.graphs

    def spoil() -> None:
        if graphs is not None:
            for bucket in graphs._buckets.values():
                bucket.inputs._given.table[0, 1] = b.cache.pages[0]  # rows are filled as far as pages are new
            return
        prepare = runner_module.prepare

        def prepare_wrongly(*arguments: Any) -> Any:
            inputs = prepare(*arguments)
            if arguments[0].requests[0] is a:
                inputs.metadata.block_table[0, 1] = b.cache.pages[0]
            return inputs

        monkeypatch.setattr(runner_module, "prepare", prepare_wrongly)

    first, second = run(llm, a, b, after=5, fault=spoil)
    assert first.finish_reason == "error" and second.finish_reason == "length", (first.error, second.error)


def test_an_entry_of_another_request_is_named(llm: LLM, tmp_path: Path) -> None:
    a, b = (llm.engine.requests.from_tokens(prompt, GREEDY) for prompt in PROMPTS[:2])
    run(llm, a, b, after=5, fault=lambda: swap_everything(llm, a.cache.pages[0], b.cache.pages[0]))
    assert {(report["request"], report["found_is_of_request"]) for report in reports(tmp_path)} & {
        (a.id, b.id),
        (b.id, a.id),
    }


def test_after_a_preemption(llm: LLM) -> None:
    """A preempted request comes back to its own pages; one of them has changed meanwhile."""
    request = llm.engine.requests.from_tokens(PROMPTS[0], GREEDY)

    def preempt() -> None:
        llm.engine.drain()
        pages = list(request.cache.pages)
        assert llm.engine.scheduler.preempt_latest() is request
        flip_byte(caches(llm)[1].index, pages[0], 1)

    [completion] = run(llm, request, after=5, fault=preempt)
    assert completion.finish_reason == "error" and 5 <= len(completion.token_ids) < 8
    assert request.cache.admission == 2


def test_no_false_alarms(plain: LLM, llm: LLM, tmp_path: Path) -> None:
    """Chunks, reuse, preemption, cancelling, steps ahead and scoring raise no alarm and change no answer."""
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    expected = [completion.token_ids for completion in plain.generate(PROMPTS, params)]
    found = [c.token_ids for c in llm.generate(PROMPTS, params)]
    preempted = preempt_every_other_step(llm)
    found += [c.token_ids for c in llm.generate(PROMPTS[:2], params)]
    assert llm.precision == "fp8" or found == expected + expected[:2]
    cancelled = llm.stream(PROMPTS[2], GREEDY)
    next(cancelled)
    cancelled.close()
    assert any(preempted) and llm.engine.scheduler.cached_tokens > 0
    score(llm.engine, llm.engine.requests.from_tokens(PROMPTS[2]), 1)
    llm.logits(PROMPTS[2], chunk=50)
    assert all(completion.error is None for completion in llm.generate(PROMPTS, SHORT)) and not reports(tmp_path)


def test_reused_pages_of_a_scored_answer_are_verified(llm: LLM) -> None:
    prompt, answer = PROMPTS[2], [5, 7]
    assert len(llm.score_answer(prompt, answer).selections) == 2
    llm.generate(prompt, SHORT)
    pages, *_ = llm.engine.pool.match(prompt)
    llm.engine.pool.release(pages)
    flip_byte(caches(llm)[0].latent, pages[0], 0)
    with pytest.raises(RuntimeError, match="the cache check failed at position 0 "):
        llm.score_answer(prompt, answer)


def test_scoring_raises(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    if llm.precision == "fp8" and hasattr(attention, "norm_and_cache"):
        pytest.skip("a fused launch writes the index keys")
    write, calls = indexer.write_index_cache, [0]

    def skip_one(*arguments: Any, **options: Any) -> None:
        calls[0] += 1
        if calls[0] != 3:
            write(*arguments, **options)

    monkeypatch.setattr(indexer, "write_index_cache", skip_one)
    with pytest.raises(RuntimeError, match="the stamp of its index key in layer"):
        llm.logits(PROMPTS[2], chunk=100)
    assert llm.engine.pool.used == 0
    monkeypatch.undo()
    assert llm.logits(PROMPTS[2], chunk=100).isfinite().all()


def test_without_the_option_there_is_nothing(plain: LLM) -> None:
    runner = plain.engine.runner
    assert not runner.observers and all(cache.stamps is None for cache in runner.caches)
