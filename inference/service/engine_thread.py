"""The thread that drives an engine: takes in what arrived, steps, hands out what each step added."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..engine.engine import Engine
from ..engine.scoring import ScoreJob
from ..engine.stats import EngineStats
from ..params import Completion, Delta, Request, Timings, Usage
from .streams import Inbox, deliver

log = logging.getLogger(__name__)

TIMED_OUT = "the request's time is over"
STOPPED = "the server has stopped"
STEP_FAILED = "the step that computed this answer failed"

LONGEST_PAUSE = 0.15  # seconds between two deliveries; seven a second still look like writing


class Observer(Protocol):
    """Told by the engine's thread what happens to requests; must be quick and must not raise."""

    def first_token(self, seconds: float) -> None: ...  # since the request was submitted

    def next_token(self, seconds: float) -> None: ...  # since the token before it

    def finished(self, delta: Delta, seconds: float) -> None: ...  # `delta` is the last one; seconds since submission


@dataclass
class Entry:
    """An open request. Times are those of time.monotonic."""

    request: Request
    inbox: Inbox
    submitted: float
    deadline: float
    last_token: float | None = None
    failure: str | None = None  # why it was cancelled, if not by its caller


class EngineThread:
    """Owns the engine from its start to its end. Other threads use the public methods, which never wait for a step."""

    def __init__(self, engine: Engine, pause: float = 0.0) -> None:
        """pause: seconds for each open request between two deliveries, LONGEST_PAUSE at most in all."""
        self.observers: tuple[Observer, ...] = ()
        self.typical_seconds = 1.0  # a running mean of how long requests take
        self.stats: EngineStats = engine.stats()  # after the latest step
        self._engine = engine
        self._last_step = time.monotonic()
        self._pause = pause
        self._held: list[tuple[Inbox, Delta]] = []  # deltas that wait for the next delivery
        self._last_delivery = 0.0

        self._wake = threading.Condition()  # guards the fields below
        self._arrivals: list[Entry] = []
        self._cancels: list[int] = []
        self._jobs: deque[ScoreJob] = deque()
        self._entries: dict[int, Entry] = {}  # every open request
        self._open_jobs = 0
        self._stopping = False

        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Requests and jobs that have not ended."""
        with self._wake:
            return len(self._entries) + self._open_jobs

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def seconds_since_step(self) -> float:
        """0 while there is nothing to do."""
        return time.monotonic() - self._last_step if self.open else 0.0

    def queue(self, entries: Sequence[Entry]) -> None:
        with self._wake:
            self._entries.update((entry.request.id, entry) for entry in entries)
            self._arrivals.extend(entries)
            self._wake.notify()

    def queue_job(self, job: ScoreJob) -> None:
        with self._wake:
            self._jobs.append(job)
            self._open_jobs += 1
            self._wake.notify()

    def cancel(self, request_id: int) -> None:
        with self._wake:
            if request_id in self._entries:
                self._cancels.append(request_id)
                self._wake.notify()

    def stop(self, drain: float) -> None:
        """Wait up to `drain` seconds for what is open, fail the rest, end the thread."""
        with self._wake:
            self._wake.wait_for(lambda: not self._entries and not self._open_jobs, timeout=drain)
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    # The thread's own side

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._entries and not self._jobs:
                    self._wake.notify_all()  # `stop` may be waiting for this
                    self._wake.wait_for(lambda: self._entries or self._jobs or self._stopping)
                    self._last_step = time.monotonic()
                if self._stopping:
                    break
                arrivals, self._arrivals = self._arrivals, []
                cancels, self._cancels = self._cancels, []
                job = self._jobs.popleft() if self._jobs else None
            self._step(arrivals, cancels)
            if job is not None:
                job.run(self._engine)
                with self._wake:
                    self._open_jobs -= 1
        self._fail_all(STOPPED)

    def _step(self, arrivals: list[Entry], cancels: list[int]) -> None:
        try:
            for entry in arrivals:
                self._engine.queue(entry.request)
            for request_id in cancels:
                self._engine.abort(request_id)
            self._abort_late()
            deltas = self._engine.step()
        except Exception:  # the engine itself answers a failing model; this is a bug, which must not end the service
            log.exception("the engine failed")
            self._fail_all(STEP_FAILED)
        else:
            # Before the callers are told: who has read the end of an answer sees its pages free.
            self.stats = self._engine.stats()
            self._hand_out(deltas)
        self._last_step = time.monotonic()

    def _abort_late(self) -> None:
        now = time.monotonic()
        with self._wake:
            late = [entry for entry in self._entries.values() if entry.deadline < now and entry.failure is None]
        for entry in late:
            entry.failure = TIMED_OUT
            self._engine.abort(entry.request.id)

    def _hand_out(self, deltas: list[Delta]) -> None:
        now = time.monotonic()
        urgent: set[Inbox] = set()  # whose first or last delta this is
        finished = []
        for delta in deltas:
            entry = self._entries.get(delta.request_id)
            if entry is None:
                continue
            if delta.finish_reason is not None or entry.last_token is None:
                urgent.add(entry.inbox)
            if delta.finish_reason is not None:
                finished.append(delta.request_id)
                delta = _with_failure(delta, entry.failure)
                self.typical_seconds += 0.1 * (now - entry.submitted - self.typical_seconds)
            for observer in self.observers:
                _notify(observer, entry, delta, now)
            if delta.token_ids:
                entry.last_token = now
            self._held.append((entry.inbox, delta))
        with self._wake:
            for request_id in finished:
                del self._entries[request_id]
            pause = min(self._pause * len(self._entries), LONGEST_PAUSE)
        if now - self._last_delivery >= pause:
            deliver(self._held)
            self._held, self._last_delivery = [], now
        elif urgent:
            deliver(pair for pair in self._held if pair[0] in urgent)
            self._held = [pair for pair in self._held if pair[0] not in urgent]

    def _fail_all(self, reason: str) -> None:
        """End every open request and waiting job with an error, whatever state the engine is in."""
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
            deltas = self._engine.apply_aborts()
        except Exception:
            log.exception("the engine failed to let go of its requests")
            deltas = []
        self.stats = self._engine.stats()
        ended = {delta.request_id for delta in deltas}
        unknown = [_last_delta(entry.request, reason) for entry in entries if entry.request.id not in ended]
        self._hand_out(deltas + unknown)


def _notify(observer: Observer, entry: Entry, delta: Delta, now: float) -> None:
    if delta.token_ids:
        if entry.last_token is None:
            observer.first_token(now - entry.submitted)
        else:
            observer.next_token(now - entry.last_token)
    if delta.finish_reason is not None:
        observer.finished(delta, now - entry.submitted)


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
