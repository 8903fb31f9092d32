"""Callers that share an engine without a thread of its own: whoever waits for an answer makes the next step, for all of them."""

from collections import deque
from collections.abc import Iterator

from .engine.engine import Engine
from .fair_lock import FairLock
from .params import Delta, Request


class Turns:
    """Callers from several threads; each makes one step at a turn."""

    def __init__(self, engine: Engine) -> None:
        self.lock = FairLock()  # held by whoever uses the engine
        self._engine = engine
        self._inbox: dict[int, deque[Delta]] = {}  # deltas that their request's caller has not taken yet

    def deltas(self, requests: list[Request]) -> Iterator[Delta]:
        """Queue the requests and drive the engine until the last of them has finished. Closing the iterator cancels the rest."""
        open_ids = {request.id for request in requests}
        try:
            with self.lock:
                for request in requests:
                    self._inbox[request.id] = deque()
                    self._engine.queue(request)
            while open_ids:
                with self.lock:
                    if not any(self._inbox[id] for id in open_ids):
                        self._distribute(self._engine.step())
                    deltas = [delta for id in sorted(open_ids) for delta in self._take(id)]
                for delta in deltas:
                    if delta.finish_reason is not None:
                        open_ids.discard(delta.request_id)
                        del self._inbox[delta.request_id]
                    yield delta
        finally:
            self._cancel(open_ids)

    def _distribute(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if delta.request_id in self._inbox:
                self._inbox[delta.request_id].append(delta)

    def _take(self, request_id: int) -> list[Delta]:
        inbox = self._inbox[request_id]
        deltas = list(inbox)
        inbox.clear()
        return deltas

    def _cancel(self, request_ids: set[int]) -> None:
        for id in request_ids:
            self._inbox.pop(id, None)
            self._engine.abort(id)
        # If a step runs now, the thread that runs it applies the cancellation at its next one. Waiting here could wait for
        # ourselves: Python may close a forgotten iterator in the middle of a step.
        if request_ids and self.lock.acquire(blocking=False):
            try:
                self._distribute(self._engine.apply_aborts())
            finally:
                self.lock.release()
