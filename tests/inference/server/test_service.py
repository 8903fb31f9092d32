"""The service between many callers and one engine."""

import asyncio
import gc
import itertools
import threading
import time

import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.server.service import engine_thread
from deepseek_v32.inference.server.service.service import Busy, Service
from support.fake_model import NAN, RAISE, fake_llm, reference_tokens
from support.server import submit

PROMPT = list(b"what is question 0?")  # its greedy answer is long
GREEDY = SamplingParams(temperature=0, max_tokens=12)
ENDLESS = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


def pages_return(service, seconds=30.0):
    """Wait until no request is open. Then every page must be free or cached."""
    end = time.monotonic() + seconds
    while service.stats().open and time.monotonic() < end:
        time.sleep(0.002)
    stats = service.stats()
    return stats.open == 0 and stats.engine.pages_used == 0


async def tokens_of(stream):
    return [token async for delta in stream for token in delta.token_ids]


def test_many_async_callers_each_get_their_own_answer(service):
    prompts = [[*PROMPT, i] for i in range(20)]

    async def main():
        streams = [await submit(service, prompt, GREEDY) for prompt in prompts]
        return await asyncio.gather(*map(tokens_of, streams))

    assert asyncio.run(main()) == [reference_tokens(prompt, 12) for prompt in prompts]
    assert pages_return(service)


def test_threads_and_loops_share_the_engine(service):
    answers = {}

    def sync(i):
        answers[i] = [token for delta in service.stream([*PROMPT, i], GREEDY) for token in delta.token_ids]

    async def main():
        return await tokens_of(await submit(service, [*PROMPT, 99], GREEDY))

    threads = [threading.Thread(target=sync, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    answers[99] = asyncio.run(main())
    for thread in threads:
        thread.join()
    assert answers == {i: reference_tokens([*PROMPT, i], 12) for i in (0, 1, 2, 3, 99)}


def test_take_gives_all_that_has_come(service):
    async def main():
        stream = await submit(service, PROMPT, GREEDY)
        while service.stats().open:
            await asyncio.sleep(0.002)
        await asyncio.to_thread(service.stop)  # the last delivery is over
        return await stream.take(), await stream.take()

    everything, nothing = asyncio.run(main())
    assert [token for delta in everything for token in delta.token_ids] == reference_tokens(PROMPT, 12)
    assert everything[-1].completion.finish_reason == "length"
    assert nothing == []


def test_the_first_and_the_last_delta_wait_for_nothing(monkeypatch):
    monkeypatch.setattr(engine_thread, "LONGEST_PAUSE", 1000.0)
    llm = fake_llm()
    steps = []
    taken = threading.Event()
    with Service(llm, delivery=1000.0) as service:
        # Starts a pause that does not end.
        list(service.stream(PROMPT, GREEDY))

        def hold() -> None:
            steps.append(1)
            if len(steps) > 1:  # so that the event loop takes the first delta before there are more, however late it is
                taken.wait(10)

        llm.model.before_step = hold

        async def main():
            stream = await submit(service, PROMPT, GREEDY)
            first = await stream.take()
            taken.set()
            return [first, await stream.take()]

        assert [len(deltas) for deltas in asyncio.run(main())] == [1, 11]


def test_values_out_of_range_come_back_at_the_call(service):
    with pytest.raises(ValueError, match="vocabulary"):
        service.stream([100_000])
    with pytest.raises(ValueError, match="vocabulary"):
        asyncio.run(submit(service, [100_000], GREEDY))
    assert service.stats().open == 0


def test_those_that_leave_give_their_places_back_before_the_running_step_ends():
    llm = fake_llm(max_sequences=1)
    begun, gate = threading.Event(), threading.Event()
    llm.model.before_step = lambda: (begun.set(), gate.wait(20))
    with Service(llm, max_queue=1) as service:
        first = service.stream(PROMPT, GREEDY)
        assert begun.wait(20)
        first.close()
        for _ in range(50):
            streams = [service.stream(PROMPT, GREEDY) for _ in range(2)]
            with pytest.raises(Busy):
                service.stream(PROMPT, GREEDY)
            for stream in streams:
                stream.close()
        assert service._thread.work.places == 0 and service.stats().seconds_since_step > 0
        last = service.stream(PROMPT, GREEDY)
        gate.set()
        assert list(last)[-1].finish_reason == "length"
        assert pages_return(service) and service.stats().engine.finished["abort"] == 101


def test_a_score_that_nobody_waits_for_gives_its_place_back():
    llm = fake_llm(max_sequences=1)
    begun, gate = threading.Event(), threading.Event()
    llm.model.before_step = lambda: (begun.set(), gate.wait(20))

    async def leave(service):
        for _ in range(3):
            scores = [asyncio.create_task(service.score(service.requests.from_tokens(PROMPT))) for _ in range(2)]
            await asyncio.to_thread(begun.wait, 20)
            for score in scores:
                score.cancel()
            assert not any(isinstance(end, Busy) for end in await asyncio.gather(*scores, return_exceptions=True))
            assert service._thread.work.places == 0

    with Service(llm, max_queue=1) as service:
        asyncio.run(leave(service))
        gate.set()
        assert pages_return(service)


def test_a_full_queue_refuses_all_or_nothing():
    llm = fake_llm(max_sequences=2)
    gate = threading.Event()
    llm.model.before_step = lambda: gate.wait(10)
    with Service(llm, max_queue=1) as service:
        first, second = service.stream(PROMPT, GREEDY), service.stream(PROMPT, GREEDY)
        with pytest.raises(Busy) as refusal:
            asyncio.run(service.submit_many([service.requests.from_tokens(PROMPT, GREEDY) for _ in range(2)]))
        assert refusal.value.retry_after >= 1
        third = service.stream(PROMPT, GREEDY)
        with pytest.raises(Busy):
            service.stream(PROMPT, GREEDY)
        with pytest.raises(ValueError, match="requests is 4; expected at most 3"):
            asyncio.run(service.submit_many([service.requests.from_tokens(PROMPT, GREEDY) for _ in range(4)]))
        assert (service.stats().open, service.stats().refused) == (3, 3)
        gate.set()
        assert [list(stream)[-1].finish_reason for stream in (first, second, third)] == ["length"] * 3
        assert pages_return(service)
        assert list(service.stream(PROMPT, GREEDY))[-1].finish_reason == "length"


def leave_by_closing(service):
    with service.stream(PROMPT, ENDLESS) as stream:
        next(stream)


def leave_by_forgetting(service):
    next(service.stream(PROMPT, ENDLESS))
    gc.collect()


def leave_before_the_first_token(service):
    service.stream(PROMPT, ENDLESS).close()


def leave_an_async_stream(service):
    async def main():
        async for _ in await submit(service, PROMPT, ENDLESS):
            break

    asyncio.run(main())


def leave_a_cancelled_task(service):
    async def main():
        task = asyncio.create_task(tokens_of(await submit(service, PROMPT, ENDLESS)))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


WAYS = [
    leave_by_closing,
    leave_by_forgetting,
    leave_before_the_first_token,
    leave_an_async_stream,
    leave_a_cancelled_task,
]


@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
def test_leaving_a_stream_frees_its_pages(service, leave):
    leave(service)
    assert pages_return(service)
    assert service.stats().engine.finished == {"abort": 1}


def test_a_cancelled_request_is_gone_within_two_steps():
    """Each step waits for the test, so that the test can count the steps."""
    llm = fake_llm()
    go, stepped = threading.Semaphore(0), threading.Semaphore(0)

    def one_step():
        stepped.release()
        go.acquire(timeout=10)

    llm.model.before_step = one_step
    with Service(llm) as service:
        kept, left = service.stream(PROMPT, GREEDY), service.stream(PROMPT, ENDLESS)
        for _ in range(3):
            stepped.acquire(timeout=10)
            go.release()
        # Close the stream while a step runs. The next step must run without its request.
        stepped.acquire(timeout=10)
        left.close()
        go.release()
        stepped.acquire(timeout=10)
        # The other request's page.
        assert llm.engine.pool.used == 1
        go.release(1000)
        assert list(kept)[-1].finish_reason == "length"


def test_a_failing_step_fails_its_requests_and_not_the_service(service):
    failed = list(service.stream([*PROMPT, RAISE], GREEDY))[-1]
    assert (failed.finish_reason, failed.completion.error) == (
        "error",
        "RuntimeError: the model was told to fail",
    )
    assert list(service.stream([*PROMPT, NAN], GREEDY))[-1].finish_reason == "error"
    tokens = [token for delta in service.stream(PROMPT, GREEDY) for token in delta.token_ids]
    assert tokens == reference_tokens(PROMPT, 12)
    assert pages_return(service)


def test_a_bug_in_the_engine_does_not_end_the_service(service, monkeypatch, caplog):
    step = service.llm.engine.step
    calls = iter([None, RuntimeError("a bug")])

    def faulty():
        if error := next(calls, None):
            raise error
        return step()

    monkeypatch.setattr(service.llm.engine, "step", faulty)
    *_, last = service.stream(PROMPT, ENDLESS)
    assert last.finish_reason == "error" and "bug" not in last.completion.error
    assert "a bug" in caplog.text
    assert pages_return(service)
    assert list(service.stream(PROMPT, GREEDY))[-1].finish_reason == "length"


def test_time_runs_out_for_running_and_waiting_requests():
    llm, seconds = fake_llm(max_sequences=1), itertools.count()
    with Service(llm, deadline=100, clock=lambda: next(seconds)) as service:
        running, waiting = service.stream(PROMPT, ENDLESS), service.stream(PROMPT, ENDLESS)
        ends = [list(running)[-1], list(waiting)[-1]]
        assert [end.completion.error for end in ends] == ["the request has passed its deadline"] * 2
        assert len(ends[0].completion.token_ids) > 0
        assert pages_return(service)


def test_stopping_fails_what_is_open():
    service = Service(fake_llm())
    quick, endless = service.stream(PROMPT, GREEDY), service.stream(PROMPT, ENDLESS)
    service.stop()
    service.stop()
    assert list(endless)[-1].completion.error == "the server has stopped"
    assert list(quick)[-1].finish_reason in ("length", "error")
    with pytest.raises(Busy):
        service.stream(PROMPT, GREEDY)
    assert not service._thread._thread.is_alive() and service.stats().engine.pages_used == 0


def test_a_job_that_nobody_waits_for_ends_before_its_next_chunk():
    llm = fake_llm(max_batch_tokens=1)
    begun, gate, chunks = threading.Event(), threading.Event(), []
    llm.model.before_step = lambda: (chunks.append(0), begun.set(), gate.wait(20))

    async def leave(service):
        score = asyncio.create_task(service.score(service.requests.from_tokens(PROMPT)))
        await asyncio.to_thread(begun.wait, 20)
        score.cancel()
        await asyncio.gather(score, return_exceptions=True)
        gate.set()

    with Service(llm) as service:
        asyncio.run(leave(service))
        assert pages_return(service) and len(chunks) <= 2 < len(PROMPT)


def test_a_score_past_its_deadline_times_out_by_the_clock_of_the_service():
    llm, seconds = fake_llm(max_batch_tokens=1), [0.0]

    def wait():
        seconds[0] += 3

    llm.model.before_step = wait
    with Service(llm, deadline=10, clock=lambda: seconds[0]) as service, pytest.raises(TimeoutError):
        asyncio.run(service.score(service.requests.from_tokens(PROMPT)))


def test_a_job_in_the_queue_of_a_service_that_stops_fails():
    llm = fake_llm()
    begun, gate = threading.Event(), threading.Event()
    llm.model.before_step = lambda: (begun.set(), gate.wait(20))
    service = Service(llm)

    async def main():
        stream = await submit(service, PROMPT, ENDLESS)
        await asyncio.to_thread(begun.wait, 20)
        score = asyncio.create_task(service.score(service.requests.from_tokens(PROMPT)))
        stop = asyncio.create_task(asyncio.to_thread(service.stop))
        while not service._thread.work.is_stopping:
            await asyncio.sleep(0.002)
        gate.set()
        with pytest.raises(RuntimeError, match="stopped"):
            await score
        await stop
        return [delta async for delta in stream][-1]

    assert asyncio.run(main()).finish_reason == "error"


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_scores_are_the_models_log_probabilities(chunk):
    expected = fake_llm().logits(PROMPT).log_softmax(-1)
    with Service(fake_llm(max_batch_tokens=chunk)) as service:

        async def main():
            # It keeps its place in the batch.
            busy = await submit(service, PROMPT, ENDLESS)
            scores = await service.score(service.requests.from_tokens(PROMPT), top=3)
            busy.close()
            return scores

        scores = asyncio.run(main())
        assert [score.token_id for score in scores] == PROMPT[1:]
        for row, score in zip(expected, scores, strict=False):
            assert score.logprob == pytest.approx(float(row[score.token_id]), abs=1e-5)
            assert [token for token, _ in score.top] == row.topk(3).indices.tolist()
        assert pages_return(service)


def test_the_observer_is_notified_of_every_token(service):
    events = []

    class Recorder:
        def delivers(self, delta, seconds, since_token):
            assert seconds >= (since_token or 0)
            events.append("first" if since_token is None else delta.finish_reason or "next")

    service.observe(Recorder())
    list(service.stream(PROMPT, GREEDY))
    assert events == ["first", *["next"] * 10, "length"]


def test_a_closed_loop_does_not_stop_the_others(service):
    async def leave():
        return await submit(service, PROMPT, ENDLESS)

    # The loop of this stream is closed while its request runs.
    forgotten = asyncio.run(leave())
    tokens = [token for delta in service.stream(PROMPT, GREEDY) for token in delta.token_ids]
    assert tokens == reference_tokens(PROMPT, 12)
    del forgotten
    assert pages_return(service)


@pytest.mark.parametrize(("name", "value"), [("max_queue", -1), ("deadline", 0), ("deadline", float("inf"))])
def test_limits_are_checked(name, value):
    with pytest.raises(ValueError, match=name):
        Service(fake_llm(), **{name: value})


def test_inspection_passes_through(service):
    deltas = list(service.stream(list(range(40)), GREEDY, inspect=True))
    assert all(delta.selection is not None for delta in deltas)
