"""Answers as server-sent events or whole, and their cancellation when the client disconnects."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...completion import Completion, Delta
from ..service.streams import AsyncStream
from .context import check_finished
from .errors import ApiError
from .fields import StreamOptions

KEEP_ALIVE_SECONDS = 10.0  # proxies wait for 60 s and less
_COMMENT, _PING = b": the answer is being made\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'


class EventStream(Response):
    """Server-sent events. When the client disconnects, the iterator is closed, which cancels its requests.

    It does less work per event than StreamingResponse: with many streams, the engine's thread waits for the interpreter's lock
    while the event loop works.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> None:
        # A proxy that buffers would deliver the stream in one piece.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = await _unless_disconnected(self._send(send, scope["path"]), receive)
        with contextlib.suppress(asyncio.CancelledError):
            await sending

    async def _send(self, send: Send, path: str) -> None:
        pinging = asyncio.ensure_future(self._ping(send, _PING if path == "/v1/messages" else _COMMENT))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for event in self._events:
                    self._is_quiet = False
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            # The status has been sent long before, so that an error becomes the last event before the end.
            except ApiError as error:
                await send({"type": "http.response.body", "body": error.ending(path), "more_body": True})
            pinging.cancel()
            await send({"type": "http.response.body", "body": b""})
        finally:
            pinging.cancel()
            await self._events.aclose()

    async def _ping(self, send: Send, event: bytes) -> None:
        """Send something where nothing was sent for a while: a proxy or a client may give up while a prompt is computed."""
        while True:
            self._is_quiet = True
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            if self._is_quiet:
                await send({"type": "http.response.body", "body": event, "more_body": True})


class Chunks:
    """Writes the chunks of one response. The parts that all chunks share are encoded once."""

    def __init__(self, response: dict[str, Any], options: StreamOptions | None, prompt_tokens: int) -> None:
        head = json.dumps(response)[:-1].encode()
        asks = None if options is None else options.include_usage
        running = options is not None and bool(options.continuous_usage_stats)
        self.with_usage = running if asks is None else asks
        self._before = b"data: " + head + b', "choices": ['
        self._after = b'], "usage": null}\n\n' if self.with_usage else b"]}\n\n"
        self._last = b"data: " + head + b', "choices": [], "usage": '
        self._running = running and self.with_usage
        self._prompt_tokens, self._tokens = prompt_tokens, 0

    def count(self, deltas: Sequence[Delta]) -> None:
        """Count the tokens of the next chunk, for the numbers so far."""
        self._tokens += sum([len(delta.token_ids) for delta in deltas])

    def choice(self, choice: dict[str, Any]) -> bytes:
        after = self._after
        if self._running:
            counts = {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._tokens}
            after = b'], "usage": %b}\n\n' % json.dumps({**counts, "total_tokens": sum(counts.values())}).encode()
        return self._before + json.dumps(choice).encode() + after

    def text(self, choice: Callable[[str], dict[str, Any]]) -> Callable[[str], bytes]:
        """A function equal to text → `self.choice(choice(text))`, but faster: only the text is encoded anew.

        Most chunks of a stream differ in nothing but their text.
        """
        if self._running:
            return lambda text: self.choice(choice(text))
        before, after = self.choice(choice(_PLACEHOLDER)).rsplit(_encoded(_PLACEHOLDER), 1)
        return lambda text: before + _encoded(text) + after

    def usage(self, usage: dict[str, Any]) -> bytes:
        return self._last + json.dumps(usage).encode() + b"}\n\n"


_PLACEHOLDER = "\0"


def _encoded(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


async def merged(streams: Sequence[AsyncStream]) -> AsyncIterator[tuple[int, list[Delta]]]:
    """(index of the stream, its new deltas), in order of arrival. Closes the streams when it is closed itself."""
    try:
        if len(streams) == 1:
            while deltas := await streams[0].take():
                for part in _parts(deltas):
                    yield 0, part
            return
        tasks = {asyncio.ensure_future(stream.take()): index for index, stream in enumerate(streams)}
        try:
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = tasks.pop(task)
                    if deltas := task.result():
                        tasks[asyncio.ensure_future(streams[index].take())] = index
                        for part in _parts(deltas):
                            yield index, part
        finally:
            for task in tasks:
                task.cancel()
    finally:
        for stream in streams:
            stream.close()


def _parts(deltas: list[Delta]) -> list[list[Delta]]:
    """The deltas, and a failure by itself after the text that has come with it: a failure is sent without any text."""
    last = deltas[-1]
    if last.finish_reason in (None, "stop", "length") or not any(delta.text for delta in deltas):
        return [deltas]
    return [[*deltas[:-1], replace(last, finish_reason=None, completion=None)], [replace(last, text="")]]


async def collect(streams: Sequence[AsyncStream]) -> list[Completion]:
    """The whole answers. If one of them fails, the others are cancelled and ApiError is raised."""
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


async def whole(
    request: Request, work: Coroutine[Any, Any, dict[str, Any] | str], headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with the result of `work`, an object or its JSON, which is cancelled if the client disconnects first."""
    task = await _unless_disconnected(work, request.receive)
    if not task.done():
        return Response(status_code=499)
    if isinstance(result := task.result(), str):
        return Response(result, headers=headers, media_type=JSONResponse.media_type)
    return JSONResponse(result, headers=headers)


async def _unless_disconnected(work: Coroutine[Any, Any, Any], receive: Receive) -> asyncio.Task[Any]:
    """Run `work` until it is done or the client disconnects, which cancels it."""
    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        task.cancel()  # unless it is done
    return task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
