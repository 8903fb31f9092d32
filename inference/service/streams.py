"""How a request's deltas get from the engine's thread to whoever waits for them: an inbox on one side, a stream on the other."""

import asyncio
import contextlib
import queue
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Self

from ..params import Delta

Cancel = Callable[[int], None]


class Stream:
    """A request seen by its caller. Leaving it, by `close`, a with block or by forgetting it, cancels what still runs."""

    def __init__(self, request_id: int, cancel: Cancel) -> None:
        self.request_id = request_id
        self._cancel = cancel
        self._ended = False

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._cancel(self.request_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class AsyncStream(Stream):
    """An async iterator of Deltas; to be used in the event loop that it was made in."""

    def __init__(self, request_id: int, cancel: Cancel, inbox: "AsyncInbox") -> None:
        super().__init__(request_id, cancel)
        self._inbox = inbox
        self._ready: deque[Delta] = deque()

    async def take(self) -> list[Delta]:
        """All that has come since the last time, at least one Delta; empty once the last one has been taken."""
        if self._ended:
            return []
        if not self._ready:
            self._ready.extend(await self._inbox.take())
        deltas = list(self._ready)
        self._ready.clear()
        self._ended = deltas[-1].finish_reason is not None
        return deltas

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        if not self._ready:
            self._ready.extend(await self._inbox.take())
        delta = self._ready.popleft()
        self._ended = delta.finish_reason is not None
        return delta


class SyncStream(Stream):
    """An iterator of Deltas, for a thread that may block."""

    def __init__(self, request_id: int, cancel: Cancel, inbox: "SyncInbox") -> None:
        super().__init__(request_id, cancel)
        self._inbox = inbox

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        if self._ended:
            raise StopIteration
        delta = self._inbox.deltas.get()
        self._ended = delta.finish_reason is not None
        return delta


class AsyncInbox:
    """Filled and emptied by the event loop's thread only: `deliver` asks the loop to fill it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._deltas: list[Delta] = []
        self._reader: asyncio.Future[None] | None = None  # the one that waits

    def put(self, delta: Delta) -> None:
        self._deltas.append(delta)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> list[Delta]:
        if not self._deltas:
            self._reader = self.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        deltas, self._deltas = self._deltas, []
        return deltas


class SyncInbox:
    def __init__(self) -> None:
        self.deltas: queue.SimpleQueue[Delta] = queue.SimpleQueue()


Inbox = AsyncInbox | SyncInbox


def deliver(given: Iterable[tuple[Inbox, Delta]]) -> None:
    """Hand a step's deltas out, waking each event loop once: waking it for every delta costs a tenth of a small model's speed."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[AsyncInbox, Delta]]] = defaultdict(list)
    for inbox, delta in given:
        if isinstance(inbox, SyncInbox):
            inbox.deltas.put(delta)
        else:
            by_loop[inbox.loop].append((inbox, delta))
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every reader
            loop.call_soon_threadsafe(_put_all, pairs)


def _put_all(pairs: list[tuple[AsyncInbox, Delta]]) -> None:
    for inbox, delta in pairs:
        inbox.put(delta)
