"""One engine for many callers: a thread that runs its steps, a bounded queue, and streams that cancel when they are closed.

    service = Service(llm)                                     # starts the engine's thread
    for delta in service.stream(token_ids, params): ...        # raises Busy if the queue is full, ValueError if out of range
    [stream] = await service.submit_many([service.requests.from_tokens(token_ids, params)])  # the same for an event loop
    async for delta in stream: ...                             # closing or dropping the stream cancels the request
    await asyncio.to_thread(service.stop)

While a Service exists, call no method of the LLM that runs the engine. A request always ends with a Delta that has a
finish_reason: "error" with the reason in ``completion.error`` also if its step failed, its deadline passed or the service
stopped. With several ranks, only rank 0 has a service.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....kernels.errors import ArgumentError
from ....model.selection_policy import SelectionPolicy
from ...completion import TokenLogprob
from ...engine.engine import Engine, EngineStats
from ...engine.fault import check_process
from ...engine.request import Request
from ...engine.running.scoring import AnswerScores, Progress, score, score_answer
from ...engine.scheduling.pace import DEVICE_TIMES, StepTimes
from ...llm import LLM
from ...params import SamplingParams
from .engine_thread import EngineThread, Observer
from .open_work import Entry
from .score_job import ScoreJob
from .streams import AsyncInbox, AsyncStream, Inbox, SyncInbox, SyncStream

# Waking a reader costs about 0.05 ms of the interpreter's lock, so that readers take at most 6 % of its time. A few readers get
# every token by itself; many readers get a few tokens at a time.
DELIVERY_SECONDS = 0.0008
NO_DEADLINE = 30 * 24 * 3600.0  # seconds: for callers that wait as long as it takes, or cancel


@dataclass(frozen=True)
class ServiceStats:
    """The state after the latest step."""

    engine: EngineStats
    open: int  # requests accepted and not finished
    refused: int  # requests refused with Busy since the start
    capacity: int  # the most requests at a time, but for those that their callers have cancelled
    seconds_since_step: float  # since a step ended; 0 when idle
    failed: bool  # whether the engine's thread has died of an error: every open request has ended in one, and new ones are refused

    @property
    def waiting(self) -> int:
        """Open requests that do not run yet, because pages or places in the batch are lacking."""
        return max(self.open - self.engine.running, 0)


class Service:
    """An LLM's engine, driven by a thread of its own. Any thread may call its methods."""

    def __init__(
        self,
        llm: LLM,
        *,
        max_queue: int = 128,
        deadline: float = 600.0,
        delivery: float = DELIVERY_SECONDS,
        step_times: StepTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
        thread: type[threading.Thread] = threading.Thread,
    ) -> None:
        """max_queue: requests that may be open in addition to the max_sequences that run at a time. deadline: seconds that a
        request may take, waiting included. delivery: Deltas, but a request's first and last, are collected for this many seconds
        per open request, at most 0.15 altogether. step_times: how long steps with prompt tokens should last; by default
        DEVICE_TIMES. clock, thread: others only in a simulation. ValueError for a value out of range.
        """
        if max_queue < 0:
            raise ArgumentError("max_queue", max_queue, "at least 0")
        if not (math.isfinite(deadline) and deadline > 0):
            raise ArgumentError("deadline", deadline, "a finite number of seconds above 0")
        self.llm = llm
        # Checks prompts and makes requests, in any thread. That takes a while for a long prompt: not for an event loop's thread.
        self.requests = llm.requests
        self.capacity = llm.limits.max_sequences + max_queue
        self.deadline = deadline
        llm.engine.keep_pace(step_times or DEVICE_TIMES[llm.device.type], clock)
        self.accepting = True  # until `stop`
        self._refused = 0
        self._thread = EngineThread(llm.engine, delivery, clock, thread)
        self._admitting = threading.Lock()  # counting the open requests and queueing new ones is one operation
        self._process = os.getpid()

    async def submit_many(self, requests: Sequence[Request]) -> list[AsyncStream]:
        """Queue several requests of `requests`, all or none; a stream for each: an async iterable of Deltas, the last one with the
        Completion. Raises Busy, and ValueError for more requests than the server holds."""
        loop = asyncio.get_running_loop()
        inboxes = [AsyncInbox(loop) for _ in requests]
        self._queue(requests, inboxes)
        return [AsyncStream(request.id, self.cancel, inbox) for request, inbox in zip(requests, inboxes, strict=True)]

    def stream(
        self,
        token_ids: Sequence[int],
        params: SamplingParams | None = None,
        inspect: bool | int = False,
        policy: SelectionPolicy | None = None,
    ) -> SyncStream:
        """Queue a prompt; the answer is an iterator of Deltas that blocks. Not for an event loop's thread.

        inspect: for all tokens, or for that many. policy: as in `LLM.generate`. The request is queued at once, so that Busy and
        ValueError are raised by the call itself.
        """
        request, inbox = self.requests.from_tokens(token_ids, params, inspect, policy=policy), SyncInbox()
        self._queue([request], [inbox])
        return SyncStream(request, self.cancel, inbox)

    async def score(self, request: Request, top: int = 0) -> list[TokenLogprob]:
        """The log-probability of every token of a prompt but the first, and the `top` likeliest ones at its place.

        The prompt is scored by itself, between two steps. Raises Busy, TimeoutError at the deadline, and what the model raises.
        """
        job = self._job(lambda engine, is_over: score(engine, request, top, is_over))
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            self._thread.work.cancel_job(job)
            raise

    def score_answer(
        self,
        prompt: Sequence[int],
        answer: Sequence[int],
        policy: SelectionPolicy | None = None,
        progress: Progress = lambda done, of: None,
    ) -> AnswerScores:
        """Like `LLM.score_answer`, without the likeliest tokens. It blocks: not for an event loop's thread.

        progress: called with the tokens done and all tokens. Raises Busy, TimeoutError at the deadline, and what the model raises.
        """
        request = self.requests.from_tokens([*prompt, *answer], min_new_tokens=0, policy=policy)
        job = self._job(lambda engine, is_over: score_answer(engine, request, len(answer), 0, is_over, progress))
        scores: AnswerScores = job.future.result()
        return scores

    def cancel(self, request_id: int) -> None:
        """End a request within two steps; its place is free at once. Its stream ends with finish_reason "abort". Unknown ids are
        ignored."""
        self._thread.work.cancel(request_id)

    def check_capacity(self, count: int, encoding: int = 0) -> None:
        """Raise Busy, or ValueError, if `count` requests would be refused now, before time is spent on encoding their prompts.

        encoding: requests whose prompts are being encoded, which will take places.
        """
        check_process(self._process)
        with self._admitting:
            self._check(count, encoding)

    def stats(self) -> ServiceStats:
        thread = self._thread
        return ServiceStats(
            thread.stats,
            thread.work.count,
            self._refused,
            self.capacity,
            thread.seconds_since_step,
            failed=thread.failure is not None,
        )

    def observe(self, observer: Observer) -> None:
        """Notify this observer, too, from now on."""
        self._thread.observers.append(observer)

    def stop(self) -> None:
        """Refuse new requests, fail the open ones and end the thread. May be repeated."""
        with self._admitting:
            self.accepting = False
        self._thread.stop()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _queue(self, requests: Sequence[Request], inboxes: Sequence[Inbox], jobs: Sequence[ScoreJob] = ()) -> None:
        """Queue all or none. Raises Busy, ValueError for too many, or RuntimeError in a fork."""
        check_process(self._process)
        now = self._thread.clock()
        entries = [Entry(*each, now, now + self.deadline) for each in zip(requests, inboxes, strict=True)]
        with self._admitting:
            self._check(len(entries) + len(jobs))
            self._thread.queue(entries, jobs)

    def _job(self, work: Callable[[Engine, Callable[[], bool]], object]) -> ScoreJob:
        clock = self._thread.clock
        job = ScoreJob(work, clock() + self.deadline, clock)
        self._queue([], [], [job])
        return job

    def _check(self, count: int, encoding: int = 0) -> None:
        if count > self.capacity:
            raise ValueError(
                f"the number of requests is {count}; expected at most {self.capacity}, all that the server holds"
            )
        failure = self._thread.failure if self.accepting else "the server is stopping"
        if failure is not None:
            self._refused += count
            raise Busy(failure, retry_after=30, is_final=True)
        if self._thread.work.places + encoding + count > self.capacity:
            self._refused += count
            # A place becomes free after typical_seconds / capacity, but other clients wait for it as well.
            retry_after = min(max(math.ceil(self._thread.typical_seconds), 1), 60)
            raise Busy(
                f"the queue is full: {self.capacity} requests are running, waiting or being encoded", retry_after
            )


class Busy(Exception):
    """The queue is full or the service is stopping. Nothing was queued; `retry_after` seconds later it may succeed."""

    def __init__(self, message: str, retry_after: int, is_final: bool = False) -> None:
        """is_final: this service never takes a request again; `retry_after` is for a server that is started in its place."""
        super().__init__(message)
        self.retry_after = retry_after
        self.is_final = is_final
