"""Ctrl-C between the steps of several ranks, and not within one: a step that rank 0 leaves would leave the others waiting."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INSIST_SECONDS = 3  # a second Ctrl-C this long after the first does interrupt: the step may hang


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Within the block a KeyboardInterrupt of Ctrl-C waits until its end. Other handlers of the program run at once."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no signal raises anything here
        return
    deferred: KeyboardInterrupt | None = None
    interrupted_at = 0.0

    def defer(number: int, frame: FrameType | None) -> None:
        nonlocal deferred, interrupted_at
        try:
            handler(number, frame)
        except KeyboardInterrupt as interrupt:
            if deferred is None:
                deferred, interrupted_at = interrupt, time.monotonic()
            elif time.monotonic() - interrupted_at > INSIST_SECONDS:
                raise

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if deferred is not None:
        raise deferred.with_traceback(None)
