"""Faults inside the engine end only the requests that they concern."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.completion import Completion, Delta
from deepseek_v32.inference.engine import engine, request_state, step
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.running.selection import SelectionRecorder
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.sampling.filters import Row
from deepseek_v32.inference.engine.sampling.sampler import SampledTokens
from deepseek_v32.inference.engine.scheduling import pages, scheduler
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from deepseek_v32.inference.engine.step import InFlightStep
from deepseek_v32.inference.text.detokenizer import IncrementalDecoder, StopStrings
from support.fake_model import AsyncRunner, fake_llm, reference_tokens
from support.pages import check_pool

PROMPTS = [[1, 2, 3], list(range(70)), [7] * 120, list(b"hello" * 12), list(range(70)), [9]]
# Every kind of sampling: a fault in one row must not change other rows' random numbers, penalties or log-probabilities.
KINDS: list[dict[str, Any]] = [
    dict(temperature=0),
    dict(temperature=3, seed=1, presence_penalty=2, stop=["\N{SNOWMAN}"]),
    dict(temperature=3, seed=2, top_p=0.9, logprobs=2),
    dict(temperature=0, frequency_penalty=2, repetition_penalty=3),
    dict(temperature=1, seed=4, top_k=20, stop="\N{SNOWMAN}"),
    dict(temperature=0, logprobs=1),
]
PARAMS = [SamplingParams(max_tokens=8 + 2 * i, ignore_eos=True, **kind) for i, kind in enumerate(KINDS)]
INSPECTED = 4  # the request that records its selections
VICTIM = 1  # the request that a fault is aimed at


@pytest.fixture(autouse=True, params=[False, True], ids=["", "ahead"])
def ahead(request: pytest.FixtureRequest) -> bool:
    """Tell whether steps of decodes are launched before the tokens of the step before are read."""
    return request.param


def few_pages(ahead: bool, **options: Any) -> LLM:
    """An engine in which requests wait for places, share pages and are preempted."""
    return fake_llm(ahead=ahead, **{"page_count": 4, "max_sequences": 4, "max_batch_tokens": 100, **options})


def answers(llm: LLM) -> list[Completion]:
    """The answers to PROMPTS, read from interleaved streams. Each stream ends once, and its Deltas agree with its Completion."""
    streams = {
        i: llm.stream(prompt, params, inspect=i == INSPECTED)
        for i, (prompt, params) in enumerate(zip(PROMPTS, PARAMS, strict=True))
    }
    ends, tokens = {}, {i: [] for i in streams}
    while streams:
        for i, stream in list(streams.items()):
            delta = next(stream)
            tokens[i] += delta.token_ids
            if delta.finish_reason is not None:
                assert next(stream, None) is None
                del streams[i]
                ends[i] = delta.completion
    completions = [ends[i] for i in range(len(PROMPTS))]
    assert [completion.token_ids for completion in completions] == list(tokens.values())
    return completions


@pytest.fixture(scope="module")
def undisturbed() -> list[Completion]:
    """The answers without a fault, each request by itself in an engine."""
    found = [
        fake_llm().generate([prompt], params, inspect=i == INSPECTED)[0]
        for i, (prompt, params) in enumerate(zip(PROMPTS, PARAMS, strict=True))
    ]
    assert found[0].token_ids == reference_tokens(PROMPTS[0], PARAMS[0].max_tokens or 0)
    return found


def comparable(completion: Completion) -> tuple[object, ...]:
    selected = [[each.positions(layer).tolist() for layer in (0, 1)] for each in completion.selection or ()]
    return completion.token_ids, completion.text, completion.finish_reason, completion.logprobs, selected


def check_clean(llm: LLM) -> None:
    """No page is lost, and the engine goes on."""
    assert not llm.engine.has_work and not llm.engine.scheduler.has_work
    check_pool(llm.engine.pool)
    assert llm.stats().pages_used == 0
    assert llm.generate([PROMPTS[0]], PARAMS[0])[0].token_ids == reference_tokens(PROMPTS[0], 8)


def check(llm: LLM, undisturbed: list[Completion], failed: dict[int, str]) -> None:
    """The requests of `failed` end in an error with that text, after correct tokens; the others end as without a fault."""
    for i, (found, expected) in enumerate(zip(answers(llm), undisturbed, strict=True)):
        if i in failed:
            assert found.finish_reason == "error" and found.error and failed[i] in found.error, found.error
            assert found.token_ids == expected.token_ids[: len(found.token_ids)]
        else:
            assert found.error is None, (i, found.error)
            assert comparable(found) == comparable(expected), i
    check_clean(llm)


class Fault(RuntimeError):
    pass


def inject(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    when: Callable[..., bool],
    after: bool = False,
    times: int = 1,
) -> list[int]:
    """Let `owner.name` raise at its first `times` calls for which when(*arguments) holds. Returns a list that grows at each."""
    work, raised = getattr(owner, name), []

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        chosen = len(raised) < times and when(*arguments)
        if chosen and not after:
            raised.append(1)
            raise Fault("no memory\nfor this")
        result = work(*arguments, **keywords)
        if chosen:
            raised.append(1)
            raise Fault("no memory\nfor this")
        return result

    patch.setattr(owner, name, faulty)
    return raised


def nth(number: int) -> Callable[..., bool]:
    calls = iter(range(10**9))
    return lambda *arguments: next(calls) == number


ALWAYS = 10**9


def is_victim(state: RequestState, *_: object) -> bool:
    return state.request.id == VICTIM and state.request.output_count >= 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_in_adding_a_token_ends_its_request(ahead, after, undisturbed, monkeypatch):
    raised = inject(monkeypatch, RequestState, "_push", is_victim, after)
    llm = few_pages(ahead)
    found = llm.generate(PROMPTS, PARAMS)
    for i, (one, expected) in enumerate(zip(found, undisturbed, strict=True)):
        if i == VICTIM:
            assert one.error == "adding a token to the answer failed: Fault: no memory"
            assert one.token_ids == expected.token_ids[: 3 + after] and one.text == expected.text[: len(one.text)]
        else:
            assert one.token_ids == expected.token_ids
    assert raised
    check_clean(llm)


@pytest.mark.parametrize(
    "owner, name, victim, text",
    [
        (IncrementalDecoder, "push", VICTIM, "the detokenizer failed: Fault: no memory"),
        (IncrementalDecoder, "finish", VICTIM, "the detokenizer failed: Fault: no memory"),
        (StopStrings, "push", VICTIM, "matching stop strings failed: Fault: no memory"),
        (StopStrings, "finish", VICTIM, "matching stop strings failed: Fault: no memory"),
        (SelectionRecorder, "of", INSPECTED, "adding a token to the answer failed: Fault: no memory"),
    ],
)
@pytest.mark.parametrize("times", [1, ALWAYS], ids=["once", "always"])
def test_a_fault_in_one_requests_output_ends_it_alone(
    ahead, owner, name, victim, text, times, undisturbed, monkeypatch
):
    if owner is SelectionRecorder:

        def when(recorder: Any, request: Any, *_: object) -> bool:
            return request.id == victim and request.output_count >= 3

    else:
        llm_states: dict[int, RequestState] = {}

        def when(part: Any, *_: object) -> bool:
            state = llm_states.get(victim)
            mine = state is not None and part in (state._decoder, state._stops)
            return mine and (name == "finish" or state.request.output_count >= 3)

        make = RequestState.__post_init__

        def keep(state: RequestState) -> None:
            make(state)
            llm_states[state.request.id] = state

        monkeypatch.setattr(RequestState, "__post_init__", keep)
    raised = inject(monkeypatch, owner, name, when, times=times)
    check(few_pages(ahead), undisturbed, {victim: text})
    assert raised


@pytest.mark.parametrize("times", [1, ALWAYS], ids=["once", "always"])
def test_a_fault_in_sampling_one_request_ends_it_alone(ahead, times, undisturbed, monkeypatch):
    """The batch is sampled again, request by request; penalties are not applied twice."""
    seed = PARAMS[VICTIM].seed

    def when(row: Row) -> bool:
        return row.request.seed == seed and row.request.output_count >= 3

    raised = inject(monkeypatch, sampler, "noise_key", when, times=times)
    failed = {VICTIM: "sampling failed: Fault: no memory"} if times == ALWAYS else {}
    check(few_pages(ahead), undisturbed, failed)
    assert raised


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("times", [1, ALWAYS], ids=["once", "always"])
def test_sampling_that_fails_only_for_a_batch_loses_nobody(ahead, times, after, undisturbed, monkeypatch):
    """Every request goes on when sampling fails for a whole batch, for lack of memory."""
    raised = inject(
        monkeypatch, step, "sample_tokens", lambda logits, requests, *_: len(requests) > 1, after=after, times=times
    )
    check(few_pages(ahead), undisturbed, {})
    assert raised


def test_sampling_leaves_the_logits_alone():
    llm = fake_llm()
    requests = [llm.engine.requests.from_tokens(prompt, params) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
    logits = torch.randn(len(requests), llm.config.vocab_size)
    before = logits.clone()
    once, again = (sampler.sample_tokens(logits, requests).read() for _ in range(2))
    assert torch.equal(logits, before) and once == again
    single = [sampler.sample_tokens(logits[row : row + 1], [request]).read()[0] for row, request in enumerate(requests)]
    assert single == once


def test_tokens_that_cannot_be_staged_are_taken_from_the_host(ahead, undisturbed, monkeypatch):
    raised = inject(monkeypatch, AsyncRunner, "stage_tokens", lambda *_: True, times=ALWAYS)
    check(few_pages(ahead), undisturbed, {})
    assert bool(raised) == ahead


@pytest.mark.parametrize("name", ["_fetch", "_record", "_read"])
def test_a_fault_in_recording_selections_ends_the_inspected_request_alone(ahead, name, undisturbed, monkeypatch):
    raised = inject(monkeypatch, SelectionRecorder, name, lambda *_: True)
    check(few_pages(ahead), undisturbed, {INSPECTED: "recording its selections failed: Fault: no memory"})
    assert raised


@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_of_a_forward_pass_ends_the_requests_of_that_step(ahead, number, after, undisturbed, monkeypatch):
    failed: set[int] = set()
    run, calls = Runner.run, iter(range(10**9))

    def faulty(runner: Runner, batch: Any, *arguments: Any) -> Any:
        chosen = next(calls) == number
        if chosen:
            failed.update(request.id for request in batch.requests)
        if chosen and not after:
            raise Fault("no memory")
        launched = run(runner, batch, *arguments)
        if chosen:
            raise Fault("no memory")
        return launched

    monkeypatch.setattr(Runner, "run", faulty)
    llm = few_pages(ahead)
    found = answers(llm)
    assert 0 < len(failed) < len(PROMPTS)
    for i, (one, expected) in enumerate(zip(found, undisturbed, strict=True)):
        if i not in failed:
            assert comparable(one) == comparable(expected)
        elif one.error is not None:
            assert one.error == "Fault: no memory"
            assert one.token_ids == expected.token_ids[: len(one.token_ids)]
        else:  # it had ended when the step was launched ahead
            assert ahead and one.token_ids == expected.token_ids
    check_clean(llm)


def test_a_fault_in_reading_the_tokens_ends_the_requests_of_that_step(ahead, undisturbed, monkeypatch):
    failed: set[int] = set()

    def when(sampled: SampledTokens) -> bool:
        if first and len(sampled.requests) > 1:
            first.clear()
            failed.update(request.id for request in sampled.requests)
            return True
        return False

    first = [True]
    inject(monkeypatch, SampledTokens, "read", when)
    llm = few_pages(ahead)
    for i, (one, expected) in enumerate(zip(answers(llm), undisturbed, strict=True)):
        assert one.error == ("Fault: no memory" if i in failed else None)
        assert i in failed or comparable(one) == comparable(expected)
    assert failed
    check_clean(llm)


BOOKS = [
    (Scheduler, "schedule"),
    (Scheduler, "schedule_ahead"),
    (Scheduler, "start"),
    (Scheduler, "commit"),
    (Scheduler, "remove"),
    (Scheduler, "preempt_latest"),
    (Scheduler, "_admit"),
    (Scheduler, "_grow"),
    (Scheduler, "_release"),
    (PagePool, "allocate"),
    (PagePool, "match"),
    (PagePool, "register"),
    (PagePool, "release"),
    (InFlightStep, "__init__"),
    (Engine, "_remove"),
]


@pytest.mark.parametrize("owner, name", BOOKS, ids=[f"{owner.__name__}.{name}" for owner, name in BOOKS])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_in_the_engines_books_ends_nobody(ahead, owner, name, after, undisturbed, monkeypatch):
    """After a fault in scheduler or pool, the engine rebuilds its books from the requests' pages and goes on."""
    count = 0
    for number in (0, 3):
        with pytest.MonkeyPatch.context() as patch:
            raised = inject(patch, owner, name, nth(number), after)
            check(few_pages(ahead), undisturbed, {})
            count += len(raised)
    assert count >= (1 if ahead or name != "schedule_ahead" else 0)


def test_pages_that_cannot_be_discarded_are_not_lost(ahead, undisturbed, monkeypatch):
    inject(monkeypatch, RequestState, "_push", is_victim)
    raised = inject(monkeypatch, PagePool, "discard", lambda *_: True, times=ALWAYS)
    llm = few_pages(ahead)
    found = llm.generate(PROMPTS, PARAMS)
    assert [one.token_ids for i, one in enumerate(found) if i != VICTIM] == [
        one.token_ids for i, one in enumerate(undisturbed) if i != VICTIM
    ]
    assert raised
    check_clean(llm)


@pytest.mark.parametrize("owner, name", [(Scheduler, "schedule"), (Scheduler, "commit"), (PagePool, "allocate")])
def test_a_fault_that_stays_ends_all_requests(ahead, owner, name):
    """Nothing waits forever, and once the fault is gone, the engine works."""
    llm = few_pages(ahead)
    with pytest.MonkeyPatch.context() as patch:
        inject(patch, owner, name, lambda *_: True, times=ALWAYS)
        found = llm.generate(PROMPTS, PARAMS)
    text = "the engine failed 3 times in a row: Fault: no memory"
    assert {one.error for one in found} == {text}
    check_clean(llm)


FILES = {module.__file__ for module in (engine, pages, request_state, scheduler, step)}


@contextmanager
def fault_at_line(number: int, error: BaseException) -> Iterator[list[str]]:
    """Raise before the engine's line with this number runs, counted over all lines that `Engine.step` executes, in time.

    The list gets the place. The few lines of `step` itself around the work are not counted.
    """
    where: list[str] = []
    lines = iter(range(10**9))

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in FILES or frame.f_code.co_name in ("step", "_recovering", "_take_deltas"):
            return None
        if event == "line" and next(lines) == number:
            where.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
            sys.settrace(None)
            raise error
        return trace

    def traced_step(engine: Engine) -> list[Delta]:
        before = sys.gettrace()
        sys.settrace(trace if not where else before)
        try:
            return engine_step(engine)
        finally:
            sys.settrace(before)

    engine_step = Engine.step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "step", traced_step)
        yield where


def test_ctrl_c_at_any_line_of_the_engine_costs_one_answer(ahead, undisturbed):
    """It ends the answer that drove the engine. The others get every token once, and their text."""
    llm = few_pages(ahead)
    for number in range(40, 5000, 811):
        ends: dict[int, Completion] = {}
        texts = [""] * len(PROMPTS)
        streams = dict(enumerate(llm.stream(prompt, params) for prompt, params in zip(PROMPTS, PARAMS, strict=True)))
        cut = set()
        with fault_at_line(number, KeyboardInterrupt()) as where:
            while streams:
                for i, stream in list(streams.items()):
                    try:
                        delta = next(stream)
                    except KeyboardInterrupt:
                        cut.add(i)
                        del streams[i]
                        continue
                    texts[i] += delta.text
                    if delta.completion is not None:
                        ends[i] = delta.completion
                        del streams[i]
        assert len(cut) == len(where)
        for i, completion in ends.items():
            assert completion.token_ids == undisturbed[i].token_ids, where
            assert completion.text == texts[i] == undisturbed[i].text, where
        check_clean(llm)


def test_a_fault_at_any_line_of_the_engine(ahead, undisturbed):
    """Whatever line raises, each request ends once: as without a fault, or in an error after correct tokens."""
    llm, places = few_pages(ahead), set()
    for number in range(53 if ahead else 0, 5000, 421):
        with fault_at_line(number, Fault("no memory")) as where:
            found = answers(llm)
        places.update(where)
        for one, expected in zip(found, undisturbed, strict=True):
            if one.error is None:
                assert comparable(one) == comparable(expected), where
            else:
                assert one.token_ids == expected.token_ids[: len(one.token_ids)], where
        check_clean(llm)
    assert len(places) > 5
