"""The thread that drives an engine: it queues new requests, runs steps and delivers the deltas of each step."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ...completion import Delta
from ...engine.engine import Engine, EngineStats
from ...engine.fault import Fault, first_line, log_fault
from .open_work import STEP_FAILED, STOPPED, TIMED_OUT, Entry, OpenWork, error_delta, with_failure
from .score_jobs import ScoreJob
from .streams import Inbox, deliver

log = logging.getLogger(__name__)

_DIED = "the engine's thread has failed"

# Seconds between two attempts to deliver what an event loop has not taken, while no request is open.
_RETRY_SECONDS = 0.05


class DeviceLost(RuntimeError):
    """No later step can succeed."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"the device computes nothing any more; restart the server: {fault}")


class EngineThread:
    """Owns the engine while it runs. Other threads use the methods up to `stop`, the only one that waits for a step, and `work`.

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
        self.work = OpenWork()  # filled by `queue` and `queue_job`
        # Why the thread has died; None otherwise.
        self.failure: str | None = None
        self._giving_up = threading.Lock()

        self._thread = thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self.failure is None and self._thread.is_alive()

    @property
    def seconds_since_step(self) -> float:
        """Seconds since a step ended; 0 when idle."""
        return self.clock() - self._last_step if self.work.count else 0.0

    def queue(self, entries: Sequence[Entry]) -> None:
        self.work.add(entries)
        if self.failure is not None:
            self._give_up(self.failure)

    def queue_job(self, job: ScoreJob) -> None:
        self.work.add_job(job)
        if self.failure is not None:
            self._give_up(self.failure)

    def stop(self, drain: float) -> None:
        """Give open requests up to `drain` seconds to finish, fail the others, and end the thread."""
        self.work.drain(drain)
        self._thread.join()

    # The methods below run in the engine's thread.

    def turn(self) -> None:
        """Queue what has arrived, run one step, deliver its deltas, and do one job. Raises DeviceLost."""
        arrived = self.work.take()
        failed = self._step(arrived.entries, arrived.cancels)
        if arrived.job is not None:
            arrived.job.run(self._engine)
            self.work.end_job(arrived.job)
            failed |= arrived.job.has_failed
        if failed:
            self._check_device()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self.turn()
            self._fail_all(STOPPED)
        except BaseException as error:
            log_fault(log, _DIED)
            self._give_up(str(error) if isinstance(error, DeviceLost) else f"{_DIED}: {first_line(error)}")

    def _wait_for_work(self) -> bool:
        """False once the thread must end."""
        if not self.work.is_idle:
            return not self.work.is_stopping
        alive = self.work.wait(_RETRY_SECONDS if self._delivery.is_due else None)
        self._last_step = self.clock()
        return alive

    def _check_device(self) -> None:
        """After a failure. Raises DeviceLost."""
        if (fault := self._engine.runner.device_fault()) is not None:
            raise DeviceLost(fault)

    def _step(self, arrivals: list[Entry], cancels: list[int]) -> bool:
        """Run a step. Returns whether a request has failed."""
        failed = False
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
            failed = any(delta.finish_reason == "error" for delta in deltas)
        # The engine itself handles a model that raises, so this is a bug. It must not end the service.
        except Exception:
            log_fault(log, "the engine failed")
            self._fail_all(STEP_FAILED)
            failed = True
        self._last_step = self.clock()
        return failed

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
        for entry in self.work.overdue(now):
            entry.failure = TIMED_OUT
            self._engine.abort(entry.request.id)

    def _deliver(self, deltas: list[Delta]) -> None:
        """Hand over a step's deltas, of which the first and the last of each request are urgent, and tell the observers."""
        now = self.clock()
        urgent: set[Inbox] = set()
        finished = []
        for delta in deltas:
            entry = self.work.find(delta.request_id)
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
        open_requests = self.work.end(finished)
        self._delivery.flush(urgent, now, open_requests)

    def _fail_all(self, reason: str) -> None:
        """End every open request and every waiting job with an error, whatever the state of the engine."""
        entries, jobs = self.work.take_waiting()
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
        self.failure = reason  # first: what is added after the work is cleared finds it
        with self._giving_up:  # `queue` may be here as well; what waits goes out with the ends, before them
            entries, jobs = self.work.clear()
            undelivered = self._delivery.take()
        for job in jobs:
            job.fail(RuntimeError(reason))
        deliver([*undelivered, *((entry.inbox, error_delta(entry.request, reason)) for entry in entries)])


# Seconds between two deliveries at most; seven updates a second still look like writing.
LONGEST_PAUSE = 0.15


class Delivery:
    """Collects deltas and delivers them together. One thread at a time uses it: the engine's."""

    def __init__(self, pause: float) -> None:
        """pause: seconds between two deliveries per open request, at most LONGEST_PAUSE altogether."""
        self._pause = pause
        self._waiting: list[tuple[Inbox, Delta]] = []
        self._latest = 0.0
        self._ended = 0.0  # when the step before has ended

    @property
    def is_due(self) -> bool:
        """Tell whether deltas wait for the next delivery."""
        return bool(self._waiting)

    def add(self, inbox: Inbox, delta: Delta) -> None:
        self._waiting.append((inbox, delta))

    def flush(self, urgent: Collection[Inbox], now: float, open_requests: int) -> None:
        """A step has ended. Deliver all that waits if the pause is over, or would be after another such step; else what is for the
        `urgent` inboxes. What an event loop does not take is delivered again later."""
        step, self._ended = now - self._ended, now
        if now + step - self._latest >= min(self._pause * open_requests, LONGEST_PAUSE):
            self._waiting, self._latest = deliver(self._waiting), now
        elif urgent:
            due = [parcel for parcel in self._waiting if parcel[0] in urgent]
            later = [parcel for parcel in self._waiting if parcel[0] not in urgent]
            self._waiting = deliver(due) + later

    def flush_all(self, now: float) -> None:
        """Deliver all that waits, before a step that may be long."""
        if self._waiting:
            self._waiting, self._latest = deliver(self._waiting), now

    def take(self) -> list[tuple[Inbox, Delta]]:
        """All that waits, which the caller delivers."""
        waiting, self._waiting = self._waiting, []
        return waiting


class Observer(Protocol):
    """The engine's thread calls it, so it must be quick. The first exception that it raises is logged, the others are ignored."""

    def first_token(self, seconds: float) -> None:
        """`seconds` since the request was submitted."""

    def next_token(self, seconds: float) -> None:
        """`seconds` since the token before."""

    def finished(self, delta: Delta, seconds: float) -> None:
        """`delta` is the request's last one; `seconds` since it was submitted."""


class Observers:
    """The observers of a service. Any thread may add one; only the engine's thread tells them."""

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()
        self._failed: list[Observer] = []

    def add(self, observer: Observer) -> None:
        self._observers += (observer,)

    def tell(self, delta: Delta, now: float, submitted: float, last_token: float | None) -> None:
        """Tell them all about a delta. Times are in seconds of one clock; last_token: None before the first."""
        for observer in self._observers:
            try:
                if delta.token_ids and last_token is None:
                    observer.first_token(now - submitted)
                elif delta.token_ids and last_token is not None:
                    observer.next_token(now - last_token)
                if delta.finish_reason is not None:
                    observer.finished(delta, now - submitted)
            except Exception:
                if not any(failed is observer for failed in self._failed):
                    self._failed.append(observer)
                    log_fault(log, "an observer failed; its further failures are not logged")
