"""Prompts and answers for the engine's thread to score, between two steps."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ...engine.engine import Engine
from ...engine.fault import first_line, log_fault
from ...engine.request import Request
from ...engine.running.scoring import AnswerScores, Progress, score, score_answer

log = logging.getLogger(__name__)


class ScoreJob:
    """One prompt for the engine's thread to score; `future` gets one entry for each token after the first."""

    def __init__(
        self, request: Request, top: int, deadline: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """deadline: in seconds of `clock`."""
        self.future: Future[Any] = Future()
        self._request = request
        self._top = top
        self._deadline, self._clock = deadline, clock

    def work(self, engine: Engine) -> Any:
        """Compute the result for `future`."""
        return score(engine, self._request, self._top, self.is_over)

    def is_over(self) -> bool:
        return self._clock() > self._deadline

    def run(self, engine: Engine) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(engine))
        except TimeoutError as error:
            self.future.set_exception(error)
        except Exception as error:
            log_fault(log, "scoring a prompt failed")
            self.future.set_exception(error)
        except BaseException as error:  # it ends the thread, but not an event loop that waits for this
            self.future.set_exception(RuntimeError(first_line(error)))
            raise

    def cancel(self) -> None:
        """End the job before its next chunk, because no one waits for it any more. Any thread may call it."""
        self._deadline = float("-inf")

    @property
    def has_failed(self) -> bool:
        """Tell whether the job has run and raised an exception."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is not None

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class AnswerScoreJob(ScoreJob):
    """`score_answer` for the engine's thread."""

    def __init__(
        self,
        request: Request,
        count: int,
        top: int,
        deadline: float,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """count: of the answer's tokens, the prompt's last ones."""
        super().__init__(request, top, deadline, clock)
        self._count, self._progress = count, progress

    def work(self, engine: Engine) -> AnswerScores:
        return score_answer(engine, self._request, self._count, self._top, self.is_over, self._progress)
