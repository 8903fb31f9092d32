"""How deltas reach callers: the engine's thread fills an inbox, the caller reads a stream."""

import asyncio
import queue
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self

from ...completion import Delta
from ...engine.request import Request

Cancel = Callable[[int], None]


class Stream:
    """A request as its caller sees it. `close`, the end of a with block or garbage collection cancels a request that still runs."""

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
    """An async iterable of Deltas, for use in the event loop that it was made in."""

    def __init__(self, request_id: int, cancel: Cancel, inbox: "AsyncInbox") -> None:
        super().__init__(request_id, cancel)
        self._inbox = inbox

    async def take(self) -> list[Delta]:
        """All Deltas since the last call: at least one, or none after the request's last Delta has been taken."""
        if self._ended:
            return []
        deltas = await self._inbox.take()
        self._ended = deltas[-1].finish_reason is not None
        return deltas

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while deltas := await self.take():
            for delta in deltas:
                yield delta


class SyncStream(Stream):
    """An iterator of Deltas, which blocks the thread that uses it."""

    def __init__(self, request: Request, cancel: Cancel, inbox: "SyncInbox") -> None:
        super().__init__(request.id, cancel)
        self._inbox = inbox
        self._request = request

    @property
    def computed(self) -> int:
        """Tokens of prompt and answer that are computed, or reused, at this moment."""
        return self._request.cache.computed

    def poll(self, seconds: float | None) -> Delta | None:
        """Return the next Delta; None if none comes within `seconds` (None: for ever). StopIteration after the last one."""
        if self._ended:
            raise StopIteration
        try:
            delta = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None
        self._ended = delta.finish_reason is not None
        return delta

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        delta = self.poll(None)
        assert delta is not None
        return delta


class AsyncInbox:
    """Only the event loop's thread fills and empties it; `deliver` asks the loop to do so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._deltas: list[Delta] = []
        self._reader: asyncio.Future[None] | None = None  # set while a reader waits for deltas

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


SyncInbox = queue.SimpleQueue[Delta]  # filled by the engine's thread, emptied by the caller's
Inbox = AsyncInbox | SyncInbox


def deliver(deltas: Iterable[tuple[Inbox, Delta]]) -> list[tuple[Inbox, Delta]]:
    """Put deltas into their inboxes and wake each event loop once. Returns what an open loop has not taken, for later."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[AsyncInbox, Delta]]] = defaultdict(list)
    for inbox, delta in deltas:
        if isinstance(inbox, AsyncInbox):
            by_loop[inbox.loop].append((inbox, delta))
        else:
            inbox.put(delta)
    refused: list[tuple[Inbox, Delta]] = []
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put_all, pairs)
        except Exception:
            if not loop.is_closed():  # no one reads the deltas of a closed one any more
                refused += pairs
    return refused


def _put_all(pairs: list[tuple[AsyncInbox, Delta]]) -> None:
    for inbox, delta in pairs:
        inbox.put(delta)
