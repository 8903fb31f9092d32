"""The few of gradio's routes that are served, their security headers, and their errors in the API's shape."""

import json
import logging
import re
import secrets
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Message, Receive, Scope, Send

from ..server.api.errors import ApiError

log = logging.getLogger(__name__)

# gradio compiles its event handlers in the page, which needs unsafe-eval. Everything is loaded only from this server.
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; media-src 'none'; object-src 'none'; "
        "frame-src 'none'; worker-src 'self' blob:; form-action 'none'; base-uri 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), display-capture=()",
}
# The page, its assets and the calls of its events. Uploads, files, the proxy and the log-in pages are not served.
SERVED = re.compile(
    r"/|/(assets|static|svelte)/.*|/theme\.css|/config|/favicon\.ico|/manifest\.json|/robots\.txt"
    r"|/gradio_api/(config|info|app_id|heartbeat/.*|queue/(join|data)|run/predict/?|cancel|reset|component_server/?|startup-events)"
)

# gradio looks an id up there without a check, and fails with a KeyError for unknown ids.
UNCHECKED_LOOKUP = "/gradio_api/component_server"


class ChatRoute(BaseRoute):
    """The chat's mount: only SERVED, with HEADERS. An error gets OpenAI's shape, next to its own `detail`.

    gradio reads headers, ids and values without checking them, so its 422, its 500 and its early exceptions become 400.
    The chat's handlers report their own failures.
    """

    def __init__(self, mount: BaseRoute) -> None:
        self._chat = mount
        # With x-process a page notices that its server was started anew.
        headers = {**HEADERS, "x-process": secrets.token_hex(8)}
        self._headers = {name.encode(): value.encode() for name, value in headers.items()}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not SERVED.fullmatch(scope["path"]):
            return Match.NONE, {}
        return self._chat.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False
        error: Message | None = None
        body = b""

        async def translated(message: Message) -> None:
            nonlocal has_started, error, body
            if message["type"] == "http.response.start":
                theirs = [(name, value) for name, value in message["headers"] if name.lower() not in self._headers]
                message = {**message, "headers": [*theirs, *self._headers.items()]}
                if message["status"] >= 400:
                    error = message
                    return
            if error is not None:
                body += message.get("body", b"")
            else:
                has_started = True
                await send(message)

        try:
            await self._chat.handle(scope, receive, translated)
        except Exception as failure:
            # For an unknown session, gradio sends an event that says so, and then raises.
            if has_started and isinstance(failure.__cause__, HTTPException):
                await send({"type": "http.response.body", "body": b""})
                return
            if has_started:
                raise
            log.warning("the chat cannot serve a request to %s: %s", scope["path"][:100], type(failure).__name__)
            error = error or {"status": 400, "headers": self._headers.items()}
        if error is not None:
            status: int = error["status"]
            if status in (422, 500):
                status = 404 if scope["path"].rstrip("/") == UNCHECKED_LOOKUP else 400
            await _send_error(status, _detail(body), dict(error["headers"]), send)


async def _send_error(status: int, detail: Any, headers: dict[bytes, bytes], send: Send) -> None:
    reason = f": {detail[:200]}" if isinstance(detail, str) else ""
    body = ApiError(status, f"the chat cannot serve this request{reason}").body() | {"detail": detail}
    content = json.dumps(body).encode()
    headers.pop(b"content-encoding", None)
    headers |= {b"content-type": b"application/json", b"content-length": str(len(content)).encode()}
    if status == 503:
        headers[b"retry-after"] = b"1"
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": content})


def _detail(body: bytes) -> Any:
    try:
        value = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")[:200]
    return value.get("detail") if isinstance(value, dict) else None
