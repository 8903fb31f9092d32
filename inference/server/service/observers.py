"""Who is told about every token and every finished request: the server's metrics and its log."""

import logging
from typing import Protocol

from ...completion import Delta
from ...engine.fault import log_fault

log = logging.getLogger(__name__)


class Observer(Protocol):
    """The engine's thread calls it, so it must be quick. The first exception that it raises is logged, the others are ignored."""

    def first_token(self, seconds: float) -> None:
        """`seconds` since the request was submitted."""

    def next_token(self, seconds: float) -> None:
        """`seconds` since the token before."""

    def finished(self, delta: Delta, seconds: float) -> None:
        """`delta` is the request's last one; `seconds` since it was submitted."""


class Observers:
    """The observers of a service. Any thread may add one; the engine's thread alone tells them."""

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
