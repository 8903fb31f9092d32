"""The few of gradio's routes that are served, their security headers, and their errors in the API's shape."""

import json
import logging
import re
import secrets
from collections.abc import MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..server.api.errors import ApiError

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

    The application reads headers, ids and values without checking them, so its 422, its 500 and its early exceptions become 400.
    The chat's handlers report their own failures.
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
    r"|/gradio_api/(config|info|heartbeat/.*|queue/(join|data)|run/predict/?|cancel|reset|component_server/?|startup-events)"
)

# gradio looks an id up there without a check, and fails with a KeyError for unknown ids.
UNCHECKED_LOOKUP = "/gradio_api/component_server"


class Policy:
    """Wraps gradio's application: adds HEADERS to every response and answers 404 to routes that are not SERVED."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        # With it a page notices that its server was started anew.
        self._headers = {**HEADERS, "x-process": secrets.token_hex(8)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        is_lookup = path.rstrip("/") == UNCHECKED_LOOKUP
        started = False

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                theirs = [
                    (name, value) for name, value in message.get("headers", []) if name.decode().lower() not in HEADERS
                ]
                ours = [(name.encode(), value.encode()) for name, value in self._headers.items()]
                status = 404 if is_lookup and message["status"] == 500 else message["status"]
                message = {**message, "status": status, "headers": [*theirs, *ours]}
            await send(message)

        if not SERVED.fullmatch(path):
            await send_with_headers({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"not found"})
            return
        try:
            await self.app(scope, receive, send_with_headers)
        except KeyError:
            if not is_lookup:
                raise
        except RuntimeError as error:
            # For an unknown session, gradio sends an event that says so, and then raises.
            if not started or not isinstance(error.__cause__, HTTPException):
                raise
            await send({"type": "http.response.body", "body": b""})
