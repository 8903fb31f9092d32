"""What the browser may do with the chat's pages, and which of gradio's routes exist at all."""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Any, Send], Awaitable[None]]

# gradio compiles its event handlers in the page, hence unsafe-eval; everything comes from here, and nothing goes elsewhere.
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
# The page and its assets, and the calls that its events make. No uploads, no files, no proxy, no log-in pages.
SERVED = re.compile(
    r"/|/(assets|static|svelte)/.*|/theme\.css|/config|/favicon\.ico|/manifest\.json|/robots\.txt"
    r"|/gradio_api/(config|info|heartbeat/.*|queue/(join|data)|run/predict/?|cancel|reset|component_server/?|startup-events)"
)

LOOKS_UP = (
    "/gradio_api/component_server"  # where gradio looks an id of the request up unchecked, and fails with a KeyError
)


class Policy:
    """Wraps gradio's application: the headers on every response, 404 for what this chat has no use for."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        looks_up = path.rstrip("/") == LOOKS_UP

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = [
                    (name, value) for name, value in message.get("headers", []) if name.decode().lower() not in HEADERS
                ]
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                status = 404 if looks_up and message["status"] == 500 else message["status"]
                message = {**message, "status": status, "headers": [*given, *ours]}
            await send(message)

        if not SERVED.fullmatch(path):
            await send_with_headers({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"not found"})
            return
        try:
            await self.app(scope, receive, send_with_headers)
        except KeyError:
            if not looks_up:
                raise
