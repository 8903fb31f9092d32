"""The log of a server: a line for each finished request, and a line every ten seconds while requests are open.

The library itself logs through `logging.getLogger("deepseek_v32.…")`, which is silent until a program installs a handler, as
`configure_logging` does.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Literal

from ...completion import Delta
from ...engine.fault import log_fault

if TYPE_CHECKING:  # these import torch, which --help does not wait for
    from ...engine.engine import EngineStats
    from .service import Service

log = logging.getLogger(__name__)

LogLevel = Literal["debug", "info", "warning", "error"]

REPORT_SECONDS = 10.0


def configure_logging(level: LogLevel = "info") -> None:
    """Write records of this package and of the HTTP server from `level` on to standard error; of other packages, warnings."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("deepseek_v32", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())


class ServerLog:
    """An observer of a service that logs each finished request; `run` also logs the state of the service from time to time."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._restart(service.stats().engine)

    def delivers(self, delta: Delta, seconds: float, since_token: float | None) -> None:
        self._first_tokens += since_token is None and bool(delta.token_ids)
        completion = delta.completion
        if completion is None or not log.isEnabledFor(logging.INFO):
            return
        usage, timings = completion.usage, completion.timings
        guessed = f" ({timings.drafted_tokens} guessed)" if timings.drafted_tokens else ""
        parts = [
            f"request {delta.request_id}: {completion.finish_reason}",
            f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)",
            f"{usage.completion_tokens} generated{guessed}",
        ]
        if timings.time_to_first_token is not None:
            parts.append(f"first token after {timings.time_to_first_token:.2f} s")
        parts.append(f"all after {seconds:.2f} s")
        if timings.tokens_per_second is not None:
            parts.append(f"{timings.tokens_per_second:.1f} tokens/s")
        log.info("%s", ", ".join(parts))

    async def run(self) -> None:
        """Report every REPORT_SECONDS until the task is cancelled. What a report raises is logged the first time."""
        failed = False
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            try:
                self.report()
            except Exception:
                if not failed:
                    log_fault(log, "the state of the service could not be logged")
                failed = True

    def report(self) -> None:
        """Log one line about the time since the last report; nothing if no request was open in it."""
        stats = self._service.stats()
        engine, seconds = stats.engine, time.monotonic() - self._since
        generated = engine.generated_tokens - self._before.generated_tokens
        computed = engine.computed_tokens - self._before.computed_tokens
        if stats.open or computed or generated:
            # A generated token was computed by a decode step, unless it is its request's first: the prompt's last step gave it.
            prefill = max(computed - generated + self._first_tokens, 0)
            log.info(
                "running %d, waiting %d; %.1f tokens/s in, %.1f tokens/s out; pages: %d used, %d free, %d cached",
                *(engine.running, stats.waiting, prefill / seconds, generated / seconds),
                *(engine.pages_used, engine.pages_free, engine.pages_cached),
            )
        self._restart(engine)

    def _restart(self, engine: "EngineStats") -> None:
        self._before, self._since = engine, time.monotonic()
        self._first_tokens = 0  # tokens sampled at the end of a prompt, which no decode step computed
