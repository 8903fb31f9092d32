"""The security headers of the chat's responses, and the few of gradio's routes that are served."""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Any, Send], Awaitable[None]]

# gradio compiles its event handlers in the page, which needs unsafe-eval. Everything is loaded from this server alone.
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

# gradio looks up an id of the request there without a check, and fails with a KeyError for an unknown one.
UNCHECKED_LOOKUP = "/gradio_api/component_server"


class Policy:
    """Wraps gradio's application: adds HEADERS to every response and answers 404 to routes that are not SERVED."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
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
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
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
            # For a session that it does not know, gradio sends an event that says so, and then raises.
            if not started or not isinstance(error.__cause__, HTTPException):
                raise
            await send({"type": "http.response.body", "body": b""})
