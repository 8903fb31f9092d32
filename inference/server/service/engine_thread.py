"""The thread that drives an engine: it queues new requests, runs steps and delivers the deltas of each step."""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ...completion import Delta
from ...engine.engine import Engine, EngineStats
from ...engine.fault import Fault, device_fault, first_line, log_fault
from .open_work import STEP_FAILED, STOPPED, Entry, OpenWork, error_delta, with_failure
from .score_job import ScoreJob
from .streams import Inbox, deliver

log = logging.getLogger(__name__)

_DIED = "the engine's thread has failed"

# Seconds between two attempts to deliver what an event loop has not taken, while no request is open.
_RETRY_SECONDS = 0.05


class DeviceLost(RuntimeError):
    """No later step can succeed."""


class EngineThread:
    """Owns the engine while it runs. Other threads use the methods up to `stop`, the only one that waits for a step, and `work`."""

    def __init__(
        self,
        engine: Engine,
        pause: float,
        clock: Callable[[], float],
        thread: type[threading.Thread],
    ) -> None:
        """pause: of the Delivery. clock, thread: others only in a simulation, which calls `turn` itself."""
        self.observers: list[Observer] = []  # any thread may add one
        self.typical_seconds = 1.0  # an exponential moving average of how long requests take
        self.stats: EngineStats = engine.stats()  # after the latest step
        self.clock = clock
        self._engine = engine
        self._last_step = clock()
        self._delivery = Delivery(pause)
        self._failed: list[object] = []  # observers, and the engine, whose further failures are not logged
        self.work = OpenWork()
        self.failure: str | None = None  # why the thread has died
        self._giving_up = threading.Lock()
        self._thread = thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def seconds_since_step(self) -> float:
        """Seconds since a step ended; 0 when idle."""
        return self.clock() - self._last_step if self.work.count else 0.0

    def queue(self, entries: Sequence[Entry], jobs: Sequence[ScoreJob] = ()) -> None:
        self.work.add(entries, jobs)
        if self.failure is not None:
            self._give_up(self.failure)

    def stop(self) -> None:
        """Fail the open requests and end the thread."""
        self.work.stop()
        self._thread.join()

    # The methods below run in the engine's thread.

    def turn(self) -> None:
        """Queue what has arrived, run one step, deliver its deltas, and do one job. Raises DeviceLost."""
        entries, cancels, job = self.work.take(self.clock())
        failed = self._step(entries, cancels)
        if job is not None:
            failed |= job.run(self._engine)
            self.work.end_job(job)
        if failed and (fault := device_fault(self._engine.runner.drafts.device)) is not None:
            raise DeviceLost(f"the GPU has failed; restart the server: {fault}")

    def _run(self) -> None:
        try:
            while True:
                if self.work.is_idle:
                    self.work.wait(_RETRY_SECONDS if self._delivery.is_due else None)
                    self._last_step = self.clock()
                if self.work.is_stopping:
                    break
                self.turn()
            self._fail_all(STOPPED)
        except BaseException as error:
            log_fault(log, _DIED)
            self._give_up(str(error) if isinstance(error, DeviceLost) else f"{_DIED}: {first_line(error)}")

    def _step(self, arrivals: list[Entry], cancels: list[int]) -> bool:
        """Run a step. Returns whether a request has failed."""
        failed, refused = False, []
        try:
            if arrivals and self._delivery.is_due:  # prompts may make the step a long one
                self._delivery.flush_all(self.clock())
            for entry in arrivals:
                try:
                    self._engine.queue(entry.request)
                except Exception as error:
                    log_fault(log, "request %d could not be queued", entry.request.id)
                    refused.append(error_delta(entry.request, str(Fault("queueing the request", error))))
            for request_id in cancels:
                self._engine.abort(request_id)
            deltas = self._engine.step()
            # Before the delivery, so that a caller who has read the end of an answer sees its pages free.
            self._update_stats()
            self._deliver(refused + deltas)
            failed = any(delta.finish_reason == "error" for delta in deltas)
        except Exception:  # a bug: the engine itself handles a model that raises. It must not end the service
            log_fault(log, "the engine failed")
            self._fail_all(STEP_FAILED)
            failed = True
        self._last_step = self.clock()
        return failed

    def _update_stats(self) -> None:
        try:
            self.stats = self._engine.stats()
        except Exception:
            self._log_once(self._engine, "the engine's counts cannot be read; further failures are not logged")

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
            for observer in self.observers:
                try:
                    since_token = None if entry.last_token is None else now - entry.last_token
                    observer.delivers(delta, now - entry.submitted, since_token)
                except Exception:
                    self._log_once(observer, "an observer failed; its further failures are not logged")
            if delta.token_ids:
                entry.last_token = now
            self._delivery.waiting.append((entry.inbox, delta))
        self._delivery.flush(urgent, now, self.work.end(finished))

    def _log_once(self, source: object, message: str) -> None:
        if not any(failed is source for failed in self._failed):
            self._failed.append(source)
            log_fault(log, message)

    def _fail_all(self, reason: str) -> None:
        """End every open request and every waiting job with an error, whatever the state of the engine."""
        entries, jobs = self.work.take_all()
        for job in jobs:
            job.fail(reason)
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
        with self._giving_up:  # `queue` may call this, too. Waiting deltas are delivered before the final ones.
            entries, jobs = self.work.take_all(forget=True)
            undelivered, self._delivery.waiting = self._delivery.waiting, []
        for job in jobs:
            job.fail(reason)
        deliver([*undelivered, *((entry.inbox, error_delta(entry.request, reason)) for entry in entries)])


# Seconds between two deliveries at most; seven updates a second still look like writing.
LONGEST_PAUSE = 0.15


class Delivery:
    """Collects deltas and delivers them together. One thread at a time uses it: the engine's."""

    def __init__(self, pause: float) -> None:
        """pause: seconds between two deliveries per open request, at most LONGEST_PAUSE altogether."""
        self.waiting: list[tuple[Inbox, Delta]] = []
        self._pause = pause
        self._latest = 0.0
        self._ended = 0.0  # when the step before has ended

    @property
    def is_due(self) -> bool:
        return bool(self.waiting)

    def flush(self, urgent: Collection[Inbox], now: float, open_requests: int) -> None:
        """A step has ended. Deliver all that waits if the pause is over, or would be after another such step; else what is for the
        `urgent` inboxes. What an event loop does not take is delivered again later."""
        step, self._ended = now - self._ended, now
        if now + step - self._latest >= min(self._pause * open_requests, LONGEST_PAUSE):
            self.flush_all(now)
        elif urgent:
            due = [parcel for parcel in self.waiting if parcel[0] in urgent]
            later = [parcel for parcel in self.waiting if parcel[0] not in urgent]
            self.waiting = deliver(due) + later

    def flush_all(self, now: float) -> None:
        self.waiting, self._latest = deliver(self.waiting), now


class Observer(Protocol):
    """The engine's thread calls it, so it must be quick. The first exception that it raises is logged, the others are ignored."""

    def delivers(self, delta: Delta, seconds: float, since_token: float | None) -> None:
        """seconds: since the request was submitted. since_token: since its token before; None: there is none."""
