"""Answers on their way out: as server-sent events, or whole; and what happens when the client has gone."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from ..params import Completion, Delta
from ..service.streams import AsyncStream
from .context import check_finished
from .errors import ApiError

Answer = TypeVar("Answer")

DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class EventStream(Response):
    """Server-sent events. When the client goes away the iterator is closed, and with it its requests are cancelled.

    A StreamingResponse that does less for each event: with many streams at a time, what their loop does is what the engine's
    thread waits for.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        # Proxies that buffer would make a stream arrive in one piece.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watching = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending

    async def _send(self, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for event in self._events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            except ApiError as error:  # the stream has told its status long before: an error becomes its last event
                await send({"type": "http.response.body", "body": error.event(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._events.aclose()


class Chunks:
    """Writes the chunks of one response; what is the same in all of them is encoded once."""

    def __init__(self, response: dict[str, Any], with_usage: bool) -> None:
        head = json.dumps(response)[:-1].encode()
        self._before = b"data: " + head + b', "choices": ['
        self._after = b'], "usage": null}\n\n' if with_usage else b"]}\n\n"
        self._last = b"data: " + head + b', "choices": [], "usage": '

    def choice(self, choice: dict[str, Any]) -> bytes:
        return self._before + json.dumps(choice).encode() + self._after

    def text(self, choice: Callable[[str], dict[str, Any]]) -> Callable[[str], bytes]:
        """text → `self.choice(choice(text))`, for a choice that says nothing but this text: most chunks of a stream are such."""
        before, after = self.choice(choice(_GAP)).rsplit(_encoded(_GAP), 1)
        return lambda text: before + _encoded(text) + after

    def usage(self, usage: dict[str, Any]) -> bytes:
        return self._last + json.dumps(usage).encode() + b"}\n\n"


_GAP = "\0"  # where the text goes


def _encoded(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


async def merged(streams: Sequence[AsyncStream]) -> AsyncIterator[tuple[int, list[Delta]]]:
    """(which stream, what came), as it comes. Closes the streams when it is closed itself."""
    try:
        if len(streams) == 1:
            while deltas := await streams[0].take():
                yield 0, deltas
            return
        waiting = {asyncio.ensure_future(stream.take()): index for index, stream in enumerate(streams)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = waiting.pop(task)
                    if deltas := task.result():
                        waiting[asyncio.ensure_future(streams[index].take())] = index
                        yield index, deltas
        finally:
            for task in waiting:
                task.cancel()
    finally:
        for stream in streams:
            stream.close()


async def collect(streams: Sequence[AsyncStream]) -> list[Completion]:
    """The whole answers. ApiError if one of them failed; the others are cancelled then."""
    completions: list[Completion] = []
    try:
        for stream in streams:
            while deltas := await stream.take():
                last = deltas[-1]
            assert last.completion is not None
            check_finished(last.completion)
            completions.append(last.completion)
    finally:
        for stream in streams:
            stream.close()
    return completions


async def unless_gone(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Do the work while the client waits for it; ClientGone, with the work cancelled, if it does not."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        watcher.cancel()
        task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
