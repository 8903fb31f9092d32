"""One engine behind many callers: a thread that steps while there is work, a bounded queue, streams that can be left.

    service = Service(llm)                                     # starts the engine's thread
    stream = await service.submit(token_ids, params)           # Busy if the queue is full, ValueError if out of range
    async for delta in stream: ...                             # closing the stream, or forgetting it, cancels the request
    for delta in service.stream(token_ids, params): ...        # the same from a plain thread
    await asyncio.to_thread(service.stop)

From then on the engine belongs to the service: call none of the LLM's generate, stream, chat, logits or stats (its tokenizer,
config, limits and chat_token_ids stay usable). A request ends with a Delta that has a finish_reason, always: "error", with the
reason in ``completion.error``, also stands for a step that failed, a deadline that passed and a service that stopped.

Under torchrun only rank 0 has a service; how a step reaches the other ranks is the model's and the runner's affair.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .engine import EngineStats
from .llm import LLM
from .params import Completion, Delta, Request, SamplingParams, Timings, TokenLogprob, Usage
from .scoring import ScoreJob
from .streams import AsyncInbox, AsyncStream, Inbox, SyncInbox, SyncStream, deliver

log = logging.getLogger(__name__)

TIMED_OUT = "the request's time is over"
STOPPED = "the server has stopped"
STEP_FAILED = "the step that computed this answer failed"


class Busy(Exception):
    """The queue is full, or the service is stopping; nothing was queued."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds after which trying again makes sense


class Observer(Protocol):
    """Told by the engine's thread what happens to requests; must be quick and must not raise."""

    def first_token(self, seconds: float) -> None: ...  # since the request was submitted

    def next_token(self, seconds: float) -> None: ...  # since the token before it

    def finished(self, delta: Delta, seconds: float) -> None: ...  # `delta` is the last one; seconds since submission


@dataclass(frozen=True)
class ServiceStats:
    """The state after the latest step; `engine` has the counts, the pages and who is running."""

    engine: EngineStats
    open: int  # requests accepted and not finished
    refused: int  # requests refused with Busy, since the start
    capacity: int  # how many may be open
    seconds_since_step: float  # since a step ended; 0 while there is nothing to do
    alive: bool  # the engine's thread runs

    @property
    def waiting(self) -> int:
        """Requests that are open but do not run: no page or no place in the batch, or not yet seen by the engine."""
        return max(self.open - self.engine.running, 0)


@dataclass
class _Entry:
    request: Request
    inbox: Inbox
    submitted: float  # time.monotonic(), as all times here
    deadline: float
    last_token: float | None = None
    failure: str | None = None  # why it was cancelled, if not by its caller


class Service:
    """An LLM's engine, driven by one thread for everybody. Its methods may be called from any thread."""

    def __init__(
        self, llm: LLM, *, max_queue: int = 128, deadline: float = 600.0, observer: Observer | None = None
    ) -> None:
        """max_queue: requests that may be open beyond the max_sequences that run at a time. deadline: seconds that a request
        may take, waiting included. ValueError for a value out of range.
        """
        if max_queue < 0:
            raise ValueError(f"max_queue is {max_queue}; at least 0 is wanted")
        if not (math.isfinite(deadline) and deadline > 0):
            raise ValueError(f"deadline is {deadline}; a number of seconds above 0 is wanted")
        self.llm = llm
        self.capacity = llm.limits.max_sequences + max_queue
        self.deadline = deadline
        self.observer = observer
        self._engine = llm.engine
        self._wake = threading.Condition()  # guards the fields up to the blank line
        self._arrivals: deque[_Entry] = deque()
        self._jobs: deque[ScoreJob] = deque()
        self._entries: dict[int, _Entry] = {}  # every open request
        self._open_jobs = 0
        self._refused = 0
        self._cancels: list[int] = []  # open requests to be cancelled
        self._draining = False
        self._stopping = False

        self._stats = self._engine.stats()
        self._last_step = time.monotonic()
        self._typical_seconds = 1.0  # a running mean of how long requests take
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def submit(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> AsyncStream:
        """Queue a prompt; the answer comes as an async iterator of Deltas, the last one with the Completion.

        Busy: nothing was queued. ValueError: as LLM.generate. inspect: Delta.selection holds what DSA selected.
        """
        [stream] = await self.submit_many([(token_ids, params)], inspect)
        return stream

    async def submit_many(
        self, prompts: Sequence[tuple[Sequence[int], SamplingParams | None]], inspect: bool = False
    ) -> list[AsyncStream]:
        """Queue several prompts, all or none; one stream for each. Errors as `submit`."""
        loop = asyncio.get_running_loop()
        inboxes = [AsyncInbox(loop) for _ in prompts]
        entries = [
            self._entry(tokens, params, inspect, inbox)
            for (tokens, params), inbox in zip(prompts, inboxes, strict=True)
        ]
        self._queue(entries)
        return [
            AsyncStream(entry.request.id, self.cancel, inbox) for entry, inbox in zip(entries, inboxes, strict=True)
        ]

    def stream(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> SyncStream:
        """As `submit`, for threads: an iterator of Deltas. Closing or forgetting it cancels the request. Never in a loop's thread:
        it blocks. The request is queued at the call, so Busy and ValueError come at once.
        """
        inbox = SyncInbox()
        entry = self._entry(token_ids, params, inspect, inbox)
        self._queue([entry])
        return SyncStream(entry.request.id, self.cancel, inbox)

    async def score(self, token_ids: Sequence[int], top: int = 0) -> list[TokenLogprob]:
        """The log-probability of every token of a prompt given those before it, with the `top` likeliest in its place.

        It runs alone, between two steps, so others wait for it. Errors as `submit`; RuntimeError if it fails.
        """
        job = ScoreJob(self._engine.make_request(token_ids), top, time.monotonic() + self.deadline)
        with self._wake:
            self._admit(1)
            self._open_jobs += 1
            self._jobs.append(job)
            self._wake.notify()
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            job.future.cancel()

    def cancel(self, request_id: int) -> None:
        """Stop a request before the next step but one; its stream ends with finish_reason "abort". Unknown ids are ignored."""
        with self._wake:
            if request_id in self._entries:
                self._cancels.append(request_id)
                self._wake.notify()

    def stats(self) -> ServiceStats:
        with self._wake:
            idle = not self._busy()
            opened, refused = len(self._entries) + self._open_jobs, self._refused
        since = 0.0 if idle else time.monotonic() - self._last_step
        return ServiceStats(self._stats, opened, refused, self.capacity, since, self._thread.is_alive())

    @property
    def accepting(self) -> bool:
        return not self._draining

    def stop(self, drain: float = 0.0) -> None:
        """Refuse new requests, give the open ones `drain` seconds to finish, fail the rest, end the thread. May be repeated."""
        with self._wake:
            self._draining = True
            self._wake.wait_for(lambda: not self._entries and not self._open_jobs, timeout=drain)
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    # Callers' side

    def _entry(self, tokens: Sequence[int], params: SamplingParams | None, inspect: bool, inbox: Inbox) -> _Entry:
        request = self._engine.make_request(tokens, params, inspect)
        now = time.monotonic()
        return _Entry(request, inbox, now, now + self.deadline)

    def _queue(self, entries: list[_Entry]) -> None:
        with self._wake:
            self._admit(len(entries))
            self._entries.update((entry.request.id, entry) for entry in entries)
            self._arrivals.extend(entries)
            self._wake.notify()

    def _admit(self, count: int) -> None:
        if count > self.capacity:
            raise ValueError(f"{count} requests at once; this server holds {self.capacity}")
        if self._draining:
            self._refused += count
            raise Busy("the server is stopping", retry_after=30)
        if len(self._entries) + self._open_jobs + count > self.capacity:
            self._refused += count
            retry_after = min(max(math.ceil(self._typical_seconds), 1), 60)
            raise Busy(f"{self.capacity} requests are running or waiting, which is all this server holds", retry_after)

    # The engine's thread

    def _busy(self) -> bool:
        return bool(self._entries or self._jobs)

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._busy():
                    self._wake.notify_all()  # for `stop`
                    self._wake.wait_for(lambda: self._busy() or self._stopping)
                    self._last_step = time.monotonic()
                if self._stopping:
                    break
                arrivals, self._arrivals = self._arrivals, deque()
                job = self._jobs.popleft() if self._jobs else None
                cancels, self._cancels = self._cancels, []
            self._turn(arrivals, cancels, job)
        self._fail_all(STOPPED)

    def _turn(self, arrivals: deque[_Entry], cancels: list[int], job: ScoreJob | None) -> None:
        """Take in what arrived, make one step, hand out what it added."""
        try:
            for entry in arrivals:
                self._engine.queue(entry.request)
            for request_id in cancels:
                self._engine.abort(request_id)
            self._expire()
            deltas = self._engine.step()
        except Exception:  # the engine itself answers a failing model; this is a bug, which must not end the service
            log.exception("the engine failed")
            self._fail_all(STEP_FAILED)
        else:
            self._hand_out(deltas)
        if job is not None:
            job.run(self._engine)
            with self._wake:
                self._open_jobs -= 1
        self._last_step = time.monotonic()
        self._stats = self._engine.stats()

    def _expire(self) -> None:
        now = time.monotonic()
        with self._wake:
            late = [entry for entry in self._entries.values() if entry.deadline < now and entry.failure is None]
        for entry in late:
            entry.failure = TIMED_OUT
            self._engine.abort(entry.request.id)

    def _hand_out(self, deltas: list[Delta]) -> None:
        now = time.monotonic()
        given: list[tuple[Inbox, Delta]] = []
        finished = []
        for delta in deltas:
            entry = self._entries.get(delta.request_id)
            if entry is None:
                continue
            if delta.finish_reason is not None:
                finished.append(delta.request_id)
                delta = _with_failure(delta, entry.failure)
                self._typical_seconds += 0.1 * (now - entry.submitted - self._typical_seconds)
            if self.observer is not None:
                self._observe(self.observer, entry, delta, now)
            given.append((entry.inbox, delta))
        with self._wake:
            for request_id in finished:
                del self._entries[request_id]
        deliver(given)

    def _observe(self, observer: Observer, entry: _Entry, delta: Delta, now: float) -> None:
        if delta.token_ids:
            if entry.last_token is None:
                observer.first_token(now - entry.submitted)
            else:
                observer.next_token(now - entry.last_token)
            entry.last_token = now
        if delta.finish_reason is not None:
            observer.finished(delta, now - entry.submitted)

    def _fail_all(self, reason: str) -> None:
        """End every open request and job with an error, whatever state the engine is in."""
        with self._wake:
            entries, jobs = list(self._entries.values()), list(self._jobs)
            self._arrivals.clear()
            self._jobs.clear()
            self._open_jobs -= len(jobs)
        for job in jobs:
            job.fail(RuntimeError(reason))
        for entry in entries:
            entry.failure = entry.failure or reason
            self._engine.abort(entry.request.id)
        try:
            self._hand_out(self._engine.apply_aborts())
        except Exception:
            log.exception("the engine failed to let go of its requests")
        self._hand_out([_last_delta(entry.request, reason) for entry in entries if entry.request.id in self._entries])
        self._stats = self._engine.stats()


def _with_failure(delta: Delta, failure: str | None) -> Delta:
    """A cancellation by the service itself is an error to its caller; what finished in time stays as it is."""
    if failure is None or delta.finish_reason != "abort" or delta.completion is None:
        return delta
    completion = replace(delta.completion, finish_reason="error", error=failure)
    return replace(delta, finish_reason="error", completion=completion)


def _last_delta(request: Request, error: str) -> Delta:
    """The end of a request that the engine does not know, or cannot end."""
    usage = Usage(len(request.prompt), request.output_count, request.cached_tokens or 0)
    completion = Completion("", request.output, "error", usage, Timings(None, 0.0, None, 1.0), error=error)
    return Delta(request.id, finish_reason="error", completion=completion)
