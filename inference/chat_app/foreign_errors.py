"""gradio's routes as this server has them: only those that the chat needs, and with errors in the API's shape."""

import json
import logging
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..server.api.errors import ApiError
from .policy import SERVED

log = logging.getLogger(__name__)


class ChatRoute(BaseRoute):
    """The chat's mount, restricted to the paths that the chat serves."""

    def __init__(self, mount: BaseRoute) -> None:
        self._chat = mount

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and not SERVED.fullmatch(scope["path"]):
            return Match.NONE, {}
        return self._chat.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await ForeignErrors(self._chat.handle)(scope, receive, send)


class ForeignErrors:
    """ASGI middleware: a response of an error gets OpenAI's shape, next to its own `detail`.

    What the application answers with 422 or 500, or raises before it answers, becomes 400: it reads headers, ids and values without
    checking them. The handlers of the chat answer what fails in them by themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False
        error: Message | None = None
        body = b""

        async def translated(message: Message) -> None:
            nonlocal has_started, error, body
            if message["type"] == "http.response.start" and message["status"] >= 400:
                error = message
            elif error is not None:
                body += message.get("body", b"")
            else:
                has_started = True
                await send(message)

        try:
            await self._app(scope, receive, translated)
        except Exception as failure:
            if has_started:
                raise
            log.warning("the chat cannot serve a request to %s: %s", scope["path"][:100], type(failure).__name__)
            error = error or {"status": 400, "headers": []}
        if error is not None:
            status = 400 if error["status"] in (422, 500) else error["status"]
            await _send_error(status, _detail(body), dict(error["headers"]), send)


async def _send_error(status: int, detail: Any, headers: dict[bytes, bytes], send: Send) -> None:
    reason = f": {detail[:200]}" if isinstance(detail, str) else ""
    body = ApiError(status, f"the chat cannot serve this request{reason}").body() | {"detail": detail}
    content = json.dumps(body).encode()
    kept = {
        name: value
        for name, value in headers.items()
        if name not in (b"content-length", b"content-type", b"content-encoding")
    }
    kept |= {b"content-type": b"application/json", b"content-length": str(len(content)).encode()}
    if status == 503:
        kept[b"retry-after"] = b"1"
    await send({"type": "http.response.start", "status": status, "headers": list(kept.items())})
    await send({"type": "http.response.body", "body": content})


def _detail(body: bytes) -> Any:
    try:
        value = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")[:200]
    return value.get("detail") if isinstance(value, dict) else None
