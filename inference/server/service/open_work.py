"""The requests and jobs that a service has taken and not ended, under one lock, and how they end without the engine."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...completion import Completion, Delta, ErrorCode, Timings, Usage
from ...engine.request import Request
from .score_jobs import ScoreJob
from .streams import Inbox

TIMED_OUT = "the request has passed its deadline"
STOPPED = "the server has stopped"
STEP_FAILED = "the step that computed this answer failed"

_CODES: dict[str, ErrorCode] = {TIMED_OUT: "deadline", STOPPED: "stopped"}


@dataclass
class Entry:
    """An open request. Times are in seconds of EngineThread.clock."""

    request: Request
    inbox: Inbox
    submitted: float
    deadline: float
    last_token: float | None = None
    # Why the service cancelled it; None otherwise.
    failure: str | None = None


def with_failure(delta: Delta, failure: str | None) -> Delta:
    """The delta for the caller: a cancellation by the service is an error; a request that finished in time is unchanged."""
    if failure is None or delta.finish_reason != "abort" or delta.completion is None:
        return delta
    completion = replace(delta.completion, finish_reason="error", error=failure, error_code=_CODES.get(failure))
    return replace(delta, finish_reason="error", completion=completion)


def error_delta(request: Request, error: str) -> Delta:
    """The last delta of a request that the engine does not know or cannot end."""
    usage = Usage(len(request.prompt), request.output_count, request.queue.cached_tokens or 0)
    timings, code = Timings(None, 0.0, None, 1.0), _CODES.get(error)
    completion = Completion("", request.output, "error", usage, timings, error=error, error_code=code)
    return Delta(request.id, finish_reason="error", completion=completion)


@dataclass(frozen=True)
class Arrived:
    """The engine's thread's new work of one turn."""

    entries: list[Entry]
    cancels: list[int]  # ids of requests that their callers have cancelled
    job: ScoreJob | None


class OpenWork:
    """The requests and jobs of a service. Any thread may call the methods; only `wait` and `drain` block."""

    def __init__(self) -> None:
        self._wake = threading.Condition()  # guards the fields below
        self._arrivals: list[Entry] = []
        self._cancels: list[int] = []
        self._jobs: deque[ScoreJob] = deque()
        # Every open request by its id; of those, the ones that their callers have cancelled, whose places are free again.
        self._entries: dict[int, Entry] = {}
        self._cancelled: set[int] = set()
        # Jobs that have not ended, and the ones among them that are not cancelled.
        self._open_jobs = 0
        self._awaited_jobs: set[ScoreJob] = set()
        self._stopping = False

    @property
    def is_idle(self) -> bool:
        """Tell whether there is nothing to run."""
        with self._wake:
            return not self._entries and not self._jobs

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def jobs(self) -> int:
        """The number of jobs that have not ended."""
        return self._open_jobs

    @property
    def count(self) -> int:
        """Requests and jobs that have not ended."""
        with self._wake:
            return len(self._entries) + self._open_jobs

    @property
    def places(self) -> int:
        """Return how many of them hold a place: cancelled ones hold none."""
        with self._wake:
            return len(self._entries) - len(self._cancelled) + len(self._awaited_jobs)

    def find(self, request_id: int) -> Entry | None:
        """An open request, or None."""
        return self._entries.get(request_id)

    # For the callers' threads.

    def add(self, entries: Sequence[Entry]) -> None:
        with self._wake:
            self._entries.update((entry.request.id, entry) for entry in entries)
            self._arrivals.extend(entries)
            self._wake.notify()

    def add_job(self, job: ScoreJob) -> None:
        with self._wake:
            self._jobs.append(job)
            self._open_jobs += 1
            self._awaited_jobs.add(job)
            self._wake.notify()

    def cancel(self, request_id: int) -> None:
        """Have a request ended in the next turn. Its place is free at once."""
        with self._wake:
            if request_id in self._entries:
                self._cancels.append(request_id)
                self._cancelled.add(request_id)
                self._wake.notify()

    def cancel_job(self, job: ScoreJob) -> None:
        """Like `cancel`; a job that runs ends before its next chunk."""
        job.cancel()
        with self._wake:
            self._awaited_jobs.discard(job)
            if job in self._jobs:
                self._jobs.remove(job)
                self._open_jobs -= 1

    def drain(self, seconds: float) -> None:
        """Wait up to `seconds` until nothing is open, then let `wait` report the end."""
        with self._wake:
            self._wake.wait_for(lambda: not self._entries and not self._open_jobs, timeout=seconds)
            self._stopping = True
            self._wake.notify_all()

    # For the engine's thread.

    def wait(self, seconds: float | None) -> bool:
        """Wait until something is open, or so long; None: for ever. False once the thread is to end."""
        with self._wake:
            self._wake.notify_all()  # `drain` may be waiting for this
            self._wake.wait_for(lambda: self._entries or self._jobs or self._stopping, seconds)
            return not self._stopping

    def take(self) -> Arrived:
        """Take the arrivals since the last call, and the oldest waiting job."""
        with self._wake:
            arrived = Arrived(self._arrivals, self._cancels, self._jobs.popleft() if self._jobs else None)
            self._arrivals, self._cancels = [], []
            return arrived

    def overdue(self, now: float) -> list[Entry]:
        """The requests that have passed their deadline and for which that is new."""
        with self._wake:
            return [entry for entry in self._entries.values() if entry.deadline < now and entry.failure is None]

    def end(self, request_ids: Iterable[int]) -> int:
        """These requests have ended. Returns how many are open."""
        with self._wake:
            for request_id in request_ids:
                del self._entries[request_id]
                self._cancelled.discard(request_id)
            return len(self._entries)

    def end_job(self, job: ScoreJob) -> None:
        with self._wake:
            self._open_jobs -= 1
            self._awaited_jobs.discard(job)

    def take_waiting(self) -> tuple[list[Entry], list[ScoreJob]]:
        """Every open request, none of which arrives any more, and the jobs that wait, which are no longer open."""
        with self._wake:
            entries, jobs = list(self._entries.values()), list(self._jobs)
            self._arrivals.clear()
            self._jobs.clear()
            self._open_jobs -= len(jobs)
            self._awaited_jobs.difference_update(jobs)
        return entries, jobs

    def clear(self) -> tuple[list[Entry], list[ScoreJob]]:
        """Forget everything: the requests that were open, and the jobs that waited."""
        with self._wake:
            entries, jobs = list(self._entries.values()), list(self._jobs)
            for held in (self._entries, self._cancelled, self._arrivals, self._jobs, self._awaited_jobs):
                held.clear()
            self._open_jobs = 0
            self._wake.notify_all()
        return entries, jobs
