"""Errors of another application, gradio's, as errors of this API."""

import json
import logging
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError

log = logging.getLogger(__name__)


class ForeignErrors:
    """ASGI middleware: a response of an error gets OpenAI's shape, beside its own `detail`.

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
