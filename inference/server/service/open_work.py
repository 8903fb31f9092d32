"""The requests and jobs that a service has taken and not ended, under one lock, and how they end without the engine."""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...completion import Completion, Delta, ErrorCode, Timings, Usage
from ...engine.request import Request
from .score_job import ScoreJob
from .streams import Inbox

log = logging.getLogger(__name__)

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
    is_cancelled: bool = False  # by its caller: its place is free
    failure: str | None = None  # why the service cancelled it


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


class OpenWork:
    """The requests and jobs of a service. Any thread may call the methods; only `wait` blocks."""

    def __init__(self) -> None:
        self._wake = threading.Condition()  # guards the fields below
        self._entries: dict[int, Entry] = {}  # by id: every open request
        self._arrivals: list[Entry] = []
        self._cancels: list[int] = []
        self._jobs: dict[ScoreJob, None] = {}  # that have not ended
        self._waiting_jobs: deque[ScoreJob] = deque()
        self.is_stopping = False

    @property
    def is_idle(self) -> bool:
        with self._wake:
            return not self._entries and not self._waiting_jobs

    @property
    def count(self) -> int:
        """Requests and jobs that have not ended."""
        with self._wake:
            return len(self._entries) + len(self._jobs)

    @property
    def places(self) -> int:
        """Requests and jobs that hold a place. Cancelled ones do not."""
        with self._wake:
            held = sum(not entry.is_cancelled for entry in self._entries.values())
            return held + sum(not job.is_cancelled for job in self._jobs)

    def find(self, request_id: int) -> Entry | None:
        return self._entries.get(request_id)

    # For the callers' threads.

    def add(self, entries: Sequence[Entry], jobs: Sequence[ScoreJob]) -> None:
        with self._wake:
            self._entries.update((entry.request.id, entry) for entry in entries)
            self._arrivals.extend(entries)
            self._jobs.update(dict.fromkeys(jobs))
            self._waiting_jobs.extend(jobs)
            self._wake.notify()

    def cancel(self, request_id: int) -> None:
        """Have a request ended in the next turn. Its place is free at once."""
        with self._wake:
            if (entry := self._entries.get(request_id)) is not None:
                entry.is_cancelled = True
                self._cancels.append(request_id)
                self._wake.notify()

    def cancel_job(self, job: ScoreJob) -> None:
        """Like `cancel`; a job that runs ends before its next chunk."""
        with self._wake:
            job.is_cancelled = True
            if job in self._waiting_jobs:
                self._waiting_jobs.remove(job)
                del self._jobs[job]

    def stop(self) -> None:
        """End `wait`, whatever is open."""
        with self._wake:
            self.is_stopping = True
            self._wake.notify()

    # For the engine's thread.

    def wait(self, seconds: float | None) -> None:
        """Wait until something is open or the thread must end, or this long; None: for ever."""
        with self._wake:
            self._wake.wait_for(lambda: self._entries or self._waiting_jobs or self.is_stopping, seconds)

    def take(self, now: float) -> tuple[list[Entry], list[int], ScoreJob | None]:
        """Take what has come since the last call: requests, ids of those to end; and the oldest waiting job.

        Requests end if they were cancelled or have passed their deadline.
        """
        with self._wake:
            job = self._waiting_jobs.popleft() if self._waiting_jobs else None
            arrivals, self._arrivals = self._arrivals, []
            cancels, self._cancels = self._cancels, []
            for entry in self._entries.values():
                if entry.deadline < now and entry.failure is None:
                    entry.failure = TIMED_OUT
                    cancels.append(entry.request.id)
            return arrivals, cancels, job

    def end(self, request_ids: Iterable[int]) -> int:
        """These requests have ended. Returns how many are open."""
        with self._wake:
            for request_id in request_ids:
                del self._entries[request_id]
            return len(self._entries)

    def end_job(self, job: ScoreJob) -> None:
        with self._wake:
            self._jobs.pop(job, None)

    def take_all(self, forget: bool = False) -> tuple[list[Entry], list[ScoreJob]]:
        """The open requests, none of which arrives any more, and the jobs that wait, which end here. forget: nothing stays open."""
        with self._wake:
            entries, jobs = list(self._entries.values()), list(self._waiting_jobs)
            self._arrivals.clear()
            self._waiting_jobs.clear()
            for job in jobs:
                del self._jobs[job]
            if forget:
                self._entries.clear()
                self._jobs.clear()
        return entries, jobs
