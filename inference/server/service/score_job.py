"""Scoring of a prompt or an answer, between two steps of a service's engine."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ...engine.engine import Engine
from ...engine.fault import first_line, log_fault

log = logging.getLogger(__name__)


class ScoreJob:
    """Work for the engine's thread; `future` gets its result."""

    def __init__(
        self,
        work: Callable[[Engine, Callable[[], bool]], Any],
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """work: called with the engine and `is_over`, which it asks before each chunk. deadline: in seconds of `clock`."""
        self.future: Future[Any] = Future()
        self.is_cancelled = False  # no one waits for it any more
        self._work, self._deadline, self._clock = work, deadline, clock

    def is_over(self) -> bool:
        return self.is_cancelled or self._clock() > self._deadline

    def run(self, engine: Engine) -> bool:
        if not self.future.set_running_or_notify_cancel():
            return False
        try:
            self.future.set_result(self._work(engine, self.is_over))
        except Exception as error:
            if not isinstance(error, TimeoutError):
                log_fault(log, "scoring a prompt failed")
            self.future.set_exception(error)
            return True
        # This ends the engine's thread. An event loop that waits for the job gets a RuntimeError instead.
        except BaseException as error:
            self.future.set_exception(RuntimeError(first_line(error)))
            raise
        return False

    def fail(self, reason: str) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(RuntimeError(reason))
