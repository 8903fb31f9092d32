"""Whether a service takes more requests: its capacity, and the refusals."""

import math
import threading
from collections.abc import Callable

from .engine_thread import EngineThread


class Busy(Exception):
    """The queue is full or the service is stopping. Nothing was queued; `retry_after` seconds later it may succeed."""

    def __init__(self, message: str, retry_after: int, is_final: bool = False) -> None:
        """is_final: this service never takes a request again; `retry_after` is for a server that is started in its place."""
        super().__init__(message)
        self.retry_after = retry_after
        self.is_final = is_final


class Admission:
    """Takes requests for the engine's thread, or refuses them. Counting the open ones and queueing new ones is one operation."""

    def __init__(self, thread: EngineThread, capacity: int) -> None:
        """capacity: the most places."""
        self.capacity = capacity
        self.refused = 0  # since the start
        self.is_closed = False
        self._thread = thread
        self._lock = threading.Lock()

    def admit(self, count: int, queue: Callable[[], None] = lambda: None) -> None:
        """Call `queue`, which queues so many requests. Raises Busy, or ValueError for more than there are places, instead."""
        with self._lock:
            self._check(count)
            queue()

    def close(self) -> None:
        """Refuse all from now on."""
        with self._lock:
            self.is_closed = True

    def _check(self, count: int) -> None:
        if count > self.capacity:
            raise ValueError(
                f"the number of requests is {count}; expected at most {self.capacity}, all that the server holds"
            )
        if self.is_closed:
            self.refused += count
            raise Busy("the server is stopping", retry_after=30, is_final=True)
        if self._thread.failure is not None:
            self.refused += count
            raise Busy(self._thread.failure, retry_after=30, is_final=True)
        if self._thread.work.places + count > self.capacity:
            self.refused += count
            # A place becomes free after typical_seconds / capacity, but other clients wait for it as well.
            retry_after = min(max(math.ceil(self._thread.typical_seconds), 1), 60)
            raise Busy(f"the queue is full: {self.capacity} requests are running or waiting", retry_after)
