"""Faults around the engine's thread: in observers, logging, queueing, delivery, and of the thread itself."""

import asyncio
import itertools
import logging
import queue
import threading

import httpx
import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.server.service import engine_thread, server_log
from deepseek_v32.inference.server.service.engine_thread import EngineThread
from deepseek_v32.inference.server.service.open_work import Entry
from deepseek_v32.inference.server.service.score_job import ScoreJob
from deepseek_v32.inference.server.service.server_log import ServerLog
from deepseek_v32.inference.server.service.service import Busy, Service
from deepseek_v32.inference.server.service.streams import SyncInbox
from support.fake_model import NAN, RAISE, fake_llm, reference_tokens
from support.pages import check_pool
from support.server import MODEL, serving, stand_in_llm, submit

PROMPT = list(b"what is question 0?")  # its greedy answer is long
GREEDY = SamplingParams(temperature=0, max_tokens=12)
ENDLESS = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


class Fault(RuntimeError):
    pass


@pytest.fixture(autouse=True)
def nothing_waits_forever(monkeypatch):
    """A stream that never ends fails its test."""
    get = queue.SimpleQueue.get

    class Impatient(queue.SimpleQueue):
        def get(self, block=True, timeout=10):
            return get(self, block, timeout)

    monkeypatch.setattr(queue, "SimpleQueue", Impatient)


def tokens_of(stream):
    return [token for delta in stream for token in delta.token_ids]


def last_of(stream):
    return list(stream)[-1].completion


def works(service):
    """The service answers as ever, and no page is lost."""
    assert tokens_of(service.stream(PROMPT, GREEDY)) == reference_tokens(PROMPT, 12)
    assert not service.stats().failed and service.stats().open == 0
    check_pool(service.llm.engine.pool)
    return service.stats().engine.pages_used == 0


def raise_fault(*arguments, **keywords):
    raise Fault("no memory")


class BrokenObserver:
    delivers = raise_fault


class CountingObserver:
    calls = 0

    def delivers(self, *arguments):
        self.calls += 1


class BrokenHandler(logging.Handler):
    """Unlike the standard library's own, it lets its exceptions out."""

    emit = raise_fault


@pytest.fixture
def broken_log():
    """Every line of the package's log raises."""
    logger, handler = logging.getLogger("deepseek_v32"), BrokenHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_an_observer_that_raises_is_reported_once_and_disturbs_nobody(service, caplog):
    other = CountingObserver()
    service.observe(BrokenObserver())
    service.observe(other)
    assert tokens_of(service.stream(PROMPT, GREEDY)) == reference_tokens(PROMPT, 12)
    assert works(service)
    assert other.calls == 2 * 12
    reports = [record for record in caplog.records if "observer" in record.getMessage()]
    assert len(reports) == 1 and reports[0].exc_info


def test_a_log_that_raises_ends_nothing(service, broken_log):
    service.observe(ServerLog(service))
    service.observe(BrokenObserver())
    assert last_of(service.stream([*PROMPT, RAISE], GREEDY)).error == "RuntimeError: the model was told to fail"
    with pytest.raises(RuntimeError):
        asyncio.run(service.score(service.requests.from_tokens([*PROMPT, RAISE, 1])))
    assert works(service)


def test_the_report_goes_on_after_a_fault(service, monkeypatch, caplog):
    monkeypatch.setattr(server_log, "REPORT_SECONDS", 0.001)
    calls = []

    def report(log):
        calls.append(1)
        raise Fault

    monkeypatch.setattr(ServerLog, "report", report)

    async def main():
        task = asyncio.create_task(ServerLog(service).run())
        while len(calls) < 3:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert sum(record.name == server_log.__name__ for record in caplog.records) == 1


def test_a_request_that_cannot_be_queued_ends_alone(service, monkeypatch):
    make = RequestState.__post_init__

    def faulty(state):
        if state.request.prompt[-1] == 7:
            raise Fault("no memory")
        make(state)

    monkeypatch.setattr(RequestState, "__post_init__", faulty)
    before, bad, after = (service.stream([*PROMPT, last], GREEDY) for last in (1, 7, 2))
    assert last_of(bad).error == "queueing the request failed: Fault: no memory"
    assert tokens_of(before) == reference_tokens([*PROMPT, 1], 12)
    assert tokens_of(after) == reference_tokens([*PROMPT, 2], 12)
    assert works(service)


def test_counts_that_cannot_be_read_end_nothing(service, monkeypatch):
    monkeypatch.setattr(Engine, "stats", raise_fault)
    assert tokens_of(service.stream(PROMPT, GREEDY)) == reference_tokens(PROMPT, 12)
    monkeypatch.undo()
    assert works(service)


def faulty_once(work):
    calls = iter(range(10**9))

    def faulty(*arguments):
        if next(calls) == 1:
            raise Fault("no memory")
        return work(*arguments)

    return faulty


def test_deltas_that_a_loop_does_not_take_are_delivered_again(service):
    """They are delivered in order, even after the last request has ended."""

    async def main():
        loop = asyncio.get_running_loop()
        stream = await submit(service, PROMPT, GREEDY)
        loop.call_soon_threadsafe, take = faulty_once(loop.call_soon_threadsafe), loop.call_soon_threadsafe
        found = [token async for delta in stream for token in delta.token_ids]
        stream = await submit(service, PROMPT, SamplingParams(temperature=0, max_tokens=1))
        loop.call_soon_threadsafe = raise_fault
        while service.stats().open:
            await asyncio.sleep(0.002)
        loop.call_soon_threadsafe = take
        return found, [delta.finish_reason async for delta in stream]

    found, end = asyncio.run(asyncio.wait_for(main(), 10))
    assert found == reference_tokens(PROMPT, 12) and end == ["length"]
    assert works(service)


def test_a_fault_in_delivering_ends_no_request_without_a_word(service, monkeypatch):
    """A fault in the thread's own bookkeeping reaches every open request as an error."""
    monkeypatch.setattr(EngineThread, "_deliver", faulty_once(EngineThread._deliver))
    assert last_of(service.stream(PROMPT, ENDLESS)).error == engine_thread.STEP_FAILED
    assert works(service)


@pytest.mark.parametrize("error", [SystemExit("out"), MemoryError("no memory"), GeneratorExit()], ids=repr)
def test_a_thread_that_dies_ends_all_requests_and_refuses_new_ones(error, monkeypatch):
    service = Service(fake_llm())
    step, submitted, steps = service.llm.engine.step, threading.Event(), itertools.count(1)

    def die(*arguments):
        raise error

    def faulty():
        if next(steps) > 5:
            submitted.wait(10)
            monkeypatch.setattr(EngineThread, "_fail_all", die)  # for errors that the thread would handle
            raise error
        return step()

    monkeypatch.setattr(service.llm.engine, "step", faulty)
    streams = [service.stream([*PROMPT, i], ENDLESS) for i in range(3)]
    submitted.set()
    for i, stream in enumerate(streams):
        completion = last_of(stream)
        assert completion.error == f"the engine's thread has failed: {type(error).__name__}: {error}"
        assert completion.token_ids == reference_tokens([*PROMPT, i], 40)[: len(completion.token_ids)]
    service._thread._thread.join(10)
    assert service.stats().failed and service.stats().open == 0
    with pytest.raises(Busy, match="the engine's thread has failed"):
        service.stream(PROMPT, GREEDY)
    with pytest.raises(Busy, match="the engine's thread has failed"):
        asyncio.run(service.score(service.requests.from_tokens(PROMPT)))
    service.stop()


def test_a_server_whose_engine_thread_has_died_says_so():
    service = Service(stand_in_llm())
    with serving(service) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.get("/health").json()["status"] == "alive"
        server.model.before_step = exit
        body = {"model": MODEL, "prompt": "hello", "max_tokens": 4}
        failed = client.post("/v1/completions", json=body)
        assert failed.status_code == 500 and "the server's log says why" in failed.json()["error"]["message"]
        refused = client.post("/v1/completions", json=body)
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "30"
        health, ready = client.get("/health"), client.get("/ready")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")


def test_a_device_that_is_lost_ends_the_service(monkeypatch, caplog):
    """A lost device ends the service. A failure of one request or of one scored prompt does not."""
    service, fault = Service(fake_llm()), None
    monkeypatch.setattr(engine_thread, "device_fault", lambda device: fault)
    assert last_of(service.stream([*PROMPT, RAISE], GREEDY)).finish_reason == "error"
    with pytest.raises(RuntimeError):
        asyncio.run(service.score(service.requests.from_tokens([RAISE, *PROMPT])))
    assert works(service)
    other = service.stream(PROMPT, ENDLESS)
    next(other)
    fault = "AcceleratorError: CUDA error: an illegal memory access was encountered"
    failed = last_of(service.stream([*PROMPT, RAISE], GREEDY))
    assert failed.finish_reason == "error"
    lost = f"the GPU has failed; restart the server: {fault}"
    assert last_of(other).error in (lost, failed.error)
    service._thread._thread.join(10)
    assert service.stats().failed and service.stats().open == 0
    with pytest.raises(Busy, match="an illegal memory access"):
        service.stream(PROMPT, GREEDY)
    assert lost in caplog.text
    service.stop()


def test_a_request_that_arrives_while_the_thread_dies_ends(monkeypatch):
    """The thread dies between the check of a request and its queueing, and the request ends with an error."""
    service = Service(fake_llm())
    monkeypatch.setattr(EngineThread, "turn", lambda thread: exit())
    with pytest.raises(Busy):
        for _ in range(100):
            assert last_of(service.stream(PROMPT, GREEDY)).finish_reason == "error"
    inbox = SyncInbox()
    service._thread.queue([Entry(service.requests.from_tokens(PROMPT, GREEDY), inbox, 0.0, float("inf"))])
    assert inbox.get().finish_reason == "error"
    job = ScoreJob(lambda engine, is_over: None, float("inf"))
    service._thread.queue([], [job])
    assert job.future.exception(timeout=10) is not None
    assert service.stats().open == 0


@pytest.mark.parametrize("name", ["allocate", "release"])
def test_a_fault_around_scoring_leaves_no_pages(service, name, monkeypatch):
    """Requests that run at the same time go on."""
    started = threading.Event()
    service.llm.model.before_step = started.set
    running = service.stream(PROMPT, SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    started.wait(10)
    request = service.requests.from_tokens(list(range(130)))
    work, raised = getattr(PagePool, name), []

    def faulty(pool, argument):
        mine = argument == 3 if name == "allocate" else not raised and len(argument) == 3
        result = work(pool, argument)
        if mine:
            raised.append(1)
            raise Fault("no memory")
        return result

    monkeypatch.setattr(PagePool, name, faulty)
    if name == "allocate":
        with pytest.raises(Fault):
            asyncio.run(service.score(request))
    else:
        assert len(asyncio.run(service.score(request))) == 129
    expected = fake_llm().generate([PROMPT], SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    monkeypatch.undo()
    assert tokens_of(running) == expected[0].token_ids
    assert raised and works(service)


def test_a_nan_in_one_prompt_beside_others(service):
    good, bad = service.stream(PROMPT, GREEDY), service.stream([*PROMPT, NAN], GREEDY)
    assert last_of(bad).finish_reason == "error" and tokens_of(good) == reference_tokens(PROMPT, 12)
    assert works(service)
