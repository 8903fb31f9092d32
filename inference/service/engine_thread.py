"""The thread that drives an engine: it queues new requests, runs steps and delivers the deltas of each step."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..completion import Delta
from ..engine.engine import Engine
from ..engine.fault import Fault, first_line, log_fault
from ..engine.scoring import ScoreJob
from ..engine.stats import EngineStats
from .delivery import Delivery
from .entry import Entry, error_delta, with_failure
from .observers import Observers
from .streams import Inbox, deliver

log = logging.getLogger(__name__)

TIMED_OUT = "the request has passed its deadline"
STOPPED = "the server has stopped"
STEP_FAILED = "the step that computed this answer failed"

# Seconds between two attempts to deliver what an event loop has not taken, while no request is open.
_RETRY_SECONDS = 0.05


class EngineThread:
    """Owns the engine while it runs. Other threads use the public methods; of these, only `stop` waits for a step.

    Every request that is queued ends with a Delta that has a finish_reason, even if the thread dies.
    """

    def __init__(
        self,
        engine: Engine,
        pause: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        thread: type[threading.Thread] = threading.Thread,
    ) -> None:
        """pause: of the Delivery. clock, thread: others only in a simulation, which calls `turn` itself."""
        self.observers = Observers()
        # An exponential moving average of how long requests take.
        self.typical_seconds = 1.0
        # A snapshot after the latest step.
        self.stats: EngineStats = engine.stats()
        self.clock = clock
        self._engine = engine
        self._last_step = clock()
        self._delivery = Delivery(pause)
        self._stats_failed = False

        # Guards the fields below.
        self._wake = threading.Condition()
        self._arrivals: list[Entry] = []
        self._cancels: list[int] = []
        self._jobs: deque[ScoreJob] = deque()
        # Every open request by its id; of those, the ones that their callers have cancelled, whose places are free again.
        self._entries: dict[int, Entry] = {}
        self._cancelled: set[int] = set()
        # Jobs that have not ended, and those of them that nobody has cancelled.
        self._open_jobs = 0
        self._awaited_jobs: set[ScoreJob] = set()
        self._stopping = False
        # Why the thread has died; None otherwise.
        self.failure: str | None = None

        self._thread = thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Requests and jobs that have not ended."""
        with self._wake:
            return len(self._entries) + self._open_jobs

    @property
    def places(self) -> int:
        """How many of them hold a place: those that their callers have cancelled hold none."""
        with self._wake:
            return len(self._entries) - len(self._cancelled) + len(self._awaited_jobs)

    @property
    def alive(self) -> bool:
        return self.failure is None and self._thread.is_alive()

    @property
    def seconds_since_step(self) -> float:
        """Seconds since a step ended; 0 when idle."""
        return self.clock() - self._last_step if self.open else 0.0

    def queue(self, entries: Sequence[Entry]) -> None:
        with self._wake:
            self._entries.update((entry.request.id, entry) for entry in entries)
            self._arrivals.extend(entries)
            self._wake.notify()
        if self.failure is not None:
            self._give_up(self.failure)

    def queue_job(self, job: ScoreJob) -> None:
        with self._wake:
            self._jobs.append(job)
            self._open_jobs += 1
            self._awaited_jobs.add(job)
            self._wake.notify()
        if self.failure is not None:
            self._give_up(self.failure)

    def cancel(self, request_id: int) -> None:
        """End a request before the next step. Its place is free at once, however long the present step takes."""
        with self._wake:
            if request_id in self._entries:
                self._cancels.append(request_id)
                self._cancelled.add(request_id)
                self._wake.notify()

    def cancel_job(self, job: ScoreJob) -> None:
        """As `cancel`; a job that runs ends before its next chunk."""
        job.cancel()
        with self._wake:
            self._awaited_jobs.discard(job)
            if job in self._jobs:
                self._jobs.remove(job)
                self._open_jobs -= 1

    def stop(self, drain: float) -> None:
        """Give open requests up to `drain` seconds to finish, fail the others, and end the thread."""
        with self._wake:
            self._wake.wait_for(lambda: not self._entries and not self._open_jobs, timeout=drain)
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    # The methods below run in the engine's thread.

    def turn(self) -> None:
        """Queue what has arrived, run one step, deliver its deltas, and do one job."""
        with self._wake:
            arrivals, self._arrivals = self._arrivals, []
            cancels, self._cancels = self._cancels, []
            job = self._jobs.popleft() if self._jobs else None
        self._step(arrivals, cancels)
        if job is not None:
            job.run(self._engine)
            with self._wake:
                self._open_jobs -= 1
                self._awaited_jobs.discard(job)

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self.turn()
            self._fail_all(STOPPED)
        except BaseException as error:
            log_fault(log, "the engine's thread has failed")
            self._give_up(f"the engine's thread has failed: {first_line(error)}")

    def _wait_for_work(self) -> bool:
        """False once the thread is to end."""
        with self._wake:
            if not self._entries and not self._jobs:
                # `stop` may be waiting for this.
                self._wake.notify_all()
                timeout = _RETRY_SECONDS if self._delivery.is_due else None
                self._wake.wait_for(lambda: self._entries or self._jobs or self._stopping, timeout)
                self._last_step = self.clock()
            return not self._stopping

    def _step(self, arrivals: list[Entry], cancels: list[int]) -> None:
        try:
            if arrivals:  # their prompts may make the step a long one
                self._delivery.flush_all(self.clock())
            refused = self._queue_in_engine(arrivals)
            for request_id in cancels:
                self._engine.abort(request_id)
            self._abort_overdue()
            deltas = self._engine.step()
            # Before the delivery, so that a caller who has read the end of an answer sees its pages free.
            self._update_stats()
            self._deliver(refused + deltas)
        # The engine itself handles a model that raises, so this is a bug. It must not end the service.
        except Exception:
            log_fault(log, "the engine failed")
            self._fail_all(STEP_FAILED)
        self._last_step = self.clock()

    def _queue_in_engine(self, arrivals: list[Entry]) -> list[Delta]:
        """Queue the new requests. Returns the last deltas of those that the engine has not taken."""
        refused = []
        for entry in arrivals:
            try:
                self._engine.queue(entry.request)
            except Exception as error:
                log_fault(log, "request %d could not be queued", entry.request.id)
                refused.append(error_delta(entry.request, str(Fault("queueing the request", error))))
        return refused

    def _update_stats(self) -> None:
        try:
            self.stats = self._engine.stats()
        except Exception:
            if not self._stats_failed:
                log_fault(log, "the engine's counts cannot be read; further failures are not logged")
            self._stats_failed = True

    def _abort_overdue(self) -> None:
        now = self.clock()
        with self._wake:
            overdue = [entry for entry in self._entries.values() if entry.deadline < now and entry.failure is None]
        for entry in overdue:
            entry.failure = TIMED_OUT
            self._engine.abort(entry.request.id)

    def _deliver(self, deltas: list[Delta]) -> None:
        """Hand over a step's deltas, of which the first and the last of each request are urgent, and tell the observers."""
        now = self.clock()
        urgent: set[Inbox] = set()
        finished = []
        for delta in deltas:
            entry = self._entries.get(delta.request_id)
            if entry is None:
                continue
            if delta.finish_reason is not None or entry.last_token is None:
                urgent.add(entry.inbox)
            if delta.finish_reason is not None:
                finished.append(delta.request_id)
                delta = with_failure(delta, entry.failure)
                self.typical_seconds += 0.1 * (now - entry.submitted - self.typical_seconds)
            self.observers.tell(delta, now, entry.submitted, entry.last_token)
            if delta.token_ids:
                entry.last_token = now
            self._delivery.add(entry.inbox, delta)
        with self._wake:
            for request_id in finished:
                del self._entries[request_id]
                self._cancelled.discard(request_id)
            open_requests = len(self._entries)
        self._delivery.flush(urgent, now, open_requests)

    def _fail_all(self, reason: str) -> None:
        """End every open request and every waiting job with an error, whatever the state of the engine."""
        with self._wake:
            entries, jobs = list(self._entries.values()), list(self._jobs)
            self._arrivals.clear()
            self._jobs.clear()
            self._open_jobs -= len(jobs)
            self._awaited_jobs.difference_update(jobs)
        for job in jobs:
            job.fail(RuntimeError(reason))
        for entry in entries:
            entry.failure = entry.failure or reason
            self._engine.abort(entry.request.id)
        try:
            deltas = self._engine.apply_aborts()
        except Exception:
            log_fault(log, "the engine failed to cancel its requests")
            deltas = []
        self._update_stats()
        ended = {delta.request_id for delta in deltas}
        not_ended = [error_delta(entry.request, reason) for entry in entries if entry.request.id not in ended]
        self._deliver(deltas + not_ended)

    def _give_up(self, reason: str) -> None:
        """End all that is open, without the engine and the observers: the thread has died. Later requests end at once."""
        with self._wake:
            self.failure = reason
            entries, jobs = list(self._entries.values()), list(self._jobs)
            for held in (self._entries, self._cancelled, self._arrivals, self._jobs, self._awaited_jobs):
                held.clear()
            self._open_jobs = 0
            undelivered = self._delivery.take()
            self._wake.notify_all()
        for job in jobs:
            job.fail(RuntimeError(reason))
        deliver([*undelivered, *((entry.inbox, error_delta(entry.request, reason)) for entry in entries)])
