"""Open requests, and how they end if the server stops first."""

import asyncio
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import stopped

# The streams of pages that are open in browsers. They carry nothing and never end by themselves.
IDLE = "/gradio_api/heartbeat/"


@dataclass
class _Open:
    path: str
    # None until the response has begun.
    content_type: bytes | None = None
    is_complete: bool = False
    # Set before its task is cancelled, so that another cancellation is not taken for this one.
    is_ended: bool = False


class OpenRequests:
    """One for each application. `end` gives every open request the end that its client expects: an error, or an event."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[None], _Open] = {}
        self._ended = False

    def end(self, *, idle: bool = False) -> None:
        """End all requests, now and from now on, whatever they wait for; with `idle` only those that do nothing."""
        self._ended = self._ended or not idle
        for task, request in self._open.items():
            # Other responses are files, which end soon.
            is_stream = request.content_type is None or request.content_type.startswith(b"text/event-stream")
            if not request.is_complete and is_stream and (not idle or request.path.startswith(IDLE)):
                request.is_ended = True
                task.cancel()

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """The application, of which every HTTP request is one of these."""
        return partial(self.answer, app)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a request, until `end` is called."""
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if self._ended:
            await stopped().response(scope["path"])(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        request = self._open[task] = _Open(scope["path"])

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.content_type = dict(message.get("headers", ())).get(b"content-type", b"")
            else:
                request.is_complete = not message.get("more_body", False)
            await send(message)

        try:
            await app(scope, receive, watched)
        except asyncio.CancelledError:
            if not request.is_ended:
                raise
            task.uncancel()
        finally:
            del self._open[task]
        if not request.is_ended or request.is_complete:
            return
        if request.content_type is None:
            await stopped().response(request.path)(scope, receive, send)
        else:
            ending = stopped().ending(request.path) if request.path.startswith("/v1/") else b""
            await send({"type": "http.response.body", "body": ending})
