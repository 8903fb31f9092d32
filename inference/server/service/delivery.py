"""When deltas reach their readers: a few times a second, because waking a reader takes the interpreter's lock."""

from collections.abc import Collection

from ...completion import Delta
from .streams import Inbox, deliver

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
        """Whether deltas wait for the next delivery."""
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
