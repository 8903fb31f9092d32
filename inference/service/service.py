"""One engine behind many callers: a thread that steps while there is work, a bounded queue, streams that can be left.

    service = Service(llm)                                     # starts the engine's thread
    stream = await service.submit(token_ids, params)           # Busy if the queue is full, ValueError if out of range
    async for delta in stream: ...                             # closing the stream, or forgetting it, cancels the request
    for delta in service.stream(token_ids, params): ...        # the same from a plain thread
    await asyncio.to_thread(service.stop)

From then on the engine belongs to the service: call none of the LLM's generate, stream, chat, logits or stats (its tokenizer,
config, limits and chat_token_ids stay usable). A request ends with a Delta that has a finish_reason, always: "error", with the
reason in ``completion.error``, also stands for a step that failed, a deadline that passed and a service that stopped.

Under torchrun only rank 0 has a service; how a step reaches the other ranks is the runner's affair.
"""

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.scoring import ScoreJob
from ..engine.stats import EngineStats
from ..llm import LLM
from ..params import Request, SamplingParams, TokenLogprob
from .engine_thread import EngineThread, Entry, Observer
from .streams import AsyncInbox, AsyncStream, Inbox, SyncInbox, SyncStream

# Waking a reader costs about 0.05 ms of the interpreter's lock, so this bounds the readers' share of it to 1 %, up to 25 of them. A
# single reader gets every token by itself, many get a few tokens at a time.
DELIVERY_SECONDS = 0.006


class Busy(Exception):
    """The queue is full, or the service is stopping; nothing was queued."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds after which trying again makes sense


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
        """Requests that are open but do not run: there is no page or no place in the batch for them yet."""
        return max(self.open - self.engine.running, 0)


class Service:
    """An LLM's engine, driven by one thread for everybody. Its methods may be called from any thread."""

    def __init__(
        self,
        llm: LLM,
        *,
        max_queue: int = 128,
        deadline: float = 600.0,
        delivery: float = DELIVERY_SECONDS,
    ) -> None:
        """max_queue: requests that may be open beyond the max_sequences that run at a time. deadline: seconds that a request
        may take, waiting included. delivery: seconds for each open request, 0.15 at most in all; Deltas that come within them
        reach their stream together, all but a request's first and last. ValueError for a value out of range.
        """
        if max_queue < 0:
            raise ValueError(f"max_queue is {max_queue}; at least 0 is wanted")
        if not (math.isfinite(deadline) and deadline > 0):
            raise ValueError(f"deadline is {deadline}; a number of seconds above 0 is wanted")
        self.llm = llm
        self.capacity = llm.limits.max_sequences + max_queue
        self.deadline = deadline
        self._admission = threading.Lock()  # one caller at a time may count and queue
        self._refused = 0
        self._draining = False
        self._thread = EngineThread(llm.engine, delivery)

    async def submit(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> AsyncStream:
        """Queue a prompt; the answer comes as an async iterator of Deltas, the last one with the Completion.

        Busy: nothing was queued. ValueError: as LLM.generate. inspect: Delta.selection holds what DSA selected.
        """
        [stream] = await self.submit_many([await asyncio.to_thread(self.make_request, token_ids, params, inspect)])
        return stream

    def make_request(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> Request:
        """Check a prompt, for `submit_many` or `score`; a request may be used once. Raises ValueError as `LLM.generate`.

        It takes a while for a long prompt, so an event loop should call it in another thread.
        """
        return self.llm.engine.make_request(token_ids, params, inspect)

    async def submit_many(self, requests: Sequence[Request]) -> list[AsyncStream]:
        """Queue several requests of `make_request`, all or none; one stream for each. Errors as `submit`."""
        loop = asyncio.get_running_loop()
        inboxes = [AsyncInbox(loop) for _ in requests]
        self._queue([self._entry(request, inbox) for request, inbox in zip(requests, inboxes, strict=True)])
        return [AsyncStream(request.id, self.cancel, inbox) for request, inbox in zip(requests, inboxes, strict=True)]

    def stream(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False
    ) -> SyncStream:
        """As `submit`, for threads: an iterator of Deltas. Not in an event loop's thread: it blocks.

        The request is queued at the call, so Busy and ValueError come at once.
        """
        request, inbox = self.make_request(token_ids, params, inspect), SyncInbox()
        self._queue([self._entry(request, inbox)])
        return SyncStream(request.id, self.cancel, inbox)

    async def score(self, request: Request, top: int = 0) -> list[TokenLogprob]:
        """The log-probability of every token of a prompt but the first, given the tokens before it, and the `top` most likely
        tokens at each place.

        `request` comes from `make_request`. The prompt is scored alone, between two steps, while other requests wait. Raises
        Busy, TimeoutError at the deadline, and whatever the model raises.
        """
        job = ScoreJob(request, top, time.monotonic() + self.deadline)
        with self._admission:
            self._admit(1)
            self._thread.queue_job(job)
        return await asyncio.wrap_future(job.future)

    def cancel(self, request_id: int) -> None:
        """End a request before the next step but one: its stream ends with finish_reason "abort". Unknown ids are ignored."""
        self._thread.cancel(request_id)

    def check_room(self, count: int) -> None:
        """Busy, or ValueError, if so many requests would be refused now: cheaper to know before their prompts are read."""
        with self._admission:
            self._admit(count)

    def stats(self) -> ServiceStats:
        thread = self._thread
        return ServiceStats(
            thread.stats, thread.open, self._refused, self.capacity, thread.seconds_since_step, thread.alive
        )

    @property
    def accepting(self) -> bool:
        """False from `stop` on."""
        return not self._draining

    def observe(self, observer: Observer) -> None:
        """Notify this observer, too, from now on."""
        self._thread.observers += (observer,)

    def stop(self, drain: float = 0.0) -> None:
        """Refuse new requests, give the open ones `drain` seconds to finish, fail the rest, end the thread. May be repeated."""
        with self._admission:
            self._draining = True
        self._thread.stop(drain)

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _entry(self, request: Request, inbox: Inbox) -> Entry:
        now = time.monotonic()
        return Entry(request, inbox, now, now + self.deadline)

    def _queue(self, entries: list[Entry]) -> None:
        with self._admission:
            self._admit(len(entries))
            self._thread.queue(entries)

    def _admit(self, count: int) -> None:
        if count > self.capacity:
            raise ValueError(f"{count} requests at once; this server holds {self.capacity}")
        if self._draining:
            self._refused += count
            raise Busy("the server is stopping", retry_after=30)
        if self._thread.open + count > self.capacity:
            self._refused += count
            # One in capacity leaves in a capacity-th of the time that each takes, but others wait for the place as well.
            retry_after = min(max(math.ceil(self._thread.typical_seconds), 1), 60)
            raise Busy(f"{self.capacity} requests are running or waiting, which is all this server holds", retry_after)
