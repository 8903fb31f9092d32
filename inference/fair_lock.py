"""A lock that serves in order of arrival."""

import threading
from collections import deque


class FairLock:
    """Mutual exclusion, first come first served.

    `threading.Lock` lets a thread that releases and acquires in a loop keep it for ever: with several streams at a time, one
    of them would run to its end while the others wait.
    """

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()  # each locked; releasing it hands the turn to its owner

    def acquire(self, blocking: bool = True) -> bool:
        with self._state:
            if not self._held:
                self._held = True
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C while waiting: leave the queue, or pass the turn on if it came already
            with self._state:
                queued = turn in self._waiting
                if queued:
                    self._waiting.remove(turn)
            if not queued:
                self.release()
            raise
        return True

    def release(self) -> None:
        with self._state:
            if self._waiting:
                self._waiting.popleft().release()  # it stays held, by the next
            else:
                self._held = False

    def __enter__(self) -> "FairLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
