"""The checks before every route, the chat's included: who may use the server, and how much they may send."""

import asyncio
import base64
import binascii
import hmac
import ipaddress
import secrets
import zlib
from collections.abc import Callable, Collection, Coroutine
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError, overloaded
from .json_values import check_values

MAX_BODY = 8 * 2**20  # bytes; a full context of 163,840 tokens is about 1 MB of text or of token ids
TOO_LARGE = f"the body is too large; expected at most {MAX_BODY} bytes"
MAX_HEADERS = 16 * 2**10  # bytes of names and values together
BODY_SECONDS = 60.0  # in which a body must arrive
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # of bodies, and zlib's window for each
PROBES = ("/health", "/ready")  # load balancers ask without a key
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """ASGI middleware, which refuses in OpenAI's shape: large headers (431); a Host that is not this server's (403), against DNS
    rebinding; an Origin that is not the Host (403), against pages of other sites, or no URL (400); a missing or wrong API key
    (401); connections above the server's limits (503); two lengths of a body (400); large (413) and slow (408) bodies.

    The key is sent as `Authorization: Bearer KEY`, as `x-api-key: KEY`, or as the password of HTTP Basic, for which browsers ask by
    themselves.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        origins: Collection[str] = (),
        api_key: str | None = None,
    ) -> None:
        """hosts: the names, without ports, that the Host header may have; "*" allows any. origins: sites besides the Host's own
        whose pages may send requests; "*" allows any."""
        self._origins = frozenset(origins)
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._key = api_key.encode() if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scheme, _, rest = scope["path"].partition("://")
        if rest and scheme.lower() in (
            "http",
            "https",
        ):  # as to a proxy; what it names counts instead of the Host header
            host, _, path = rest.partition("/")
            headers = [each for each in scope["headers"] if each[0] != b"host"]
            scope = {**scope, "path": "/" + path, "headers": [*headers, (b"host", host.encode())]}
        send = _with_headers(send)
        if (error := self._check(scope)) is not None:
            await error.response(scope["path"])(scope, receive, send)
            return
        if scope.get("method") == "HEAD" and scope["path"] in PROBES:  # uvicorn leaves out the body
            scope = {**scope, "method": "GET"}
        await self._app(scope, self._limited(receive, _coding(Headers(scope=scope))), send)

    def _check(self, scope: Scope) -> ApiError | None:
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MAX_HEADERS:
            return ApiError(431, f"the headers have {size} bytes; expected at most {MAX_HEADERS}")
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A page cannot rebind an address, by which probes ask for a container.
        is_known = "*" in self._hosts or host_name(host) in self._hosts
        if not is_known and not (scope["path"] in PROBES and _address(host_name(host)) is not None):
            return ApiError(
                403, "the Host header has another name; expected one of this server's (--allowed-host)", code="host"
            )
        origin = headers.get("origin")
        if origin is not None:
            try:
                site = urlsplit(origin).netloc
            except ValueError as error:
                return ApiError(
                    400, f"the Origin header is not a URL: {error}; expected scheme and host", code="origin"
                )
            if site.lower() != host.lower() and self._origins.isdisjoint((origin, "*")):
                return ApiError(
                    403, "the Origin header names another site; expected this server (--allowed-origins)", code="origin"
                )
        has_key = self._key is None or scope["path"] in PROBES
        if self._key is not None and not has_key and not hmac.compare_digest(_given_key(headers), self._key):
            # Only one challenge: Chromium ignores a header with two of them, and then never asks for the password.
            challenge = {"WWW-Authenticate": 'Basic realm="deepseek-v32", charset="UTF-8"'}
            return ApiError(401, "the API key is missing or wrong", code="invalid_api_key", headers=challenge)
        if (refusal := scope.get("state", {}).get("refusal")) is not None:
            return overloaded(refusal)
        if "content-length" in headers and "transfer-encoding" in headers:
            # RFC 9112 section 6.1: a proxy may have taken the other one, and the rest of the body for another request.
            return ApiError(
                400, "the headers have Content-Length and Transfer-Encoding; expected one of them",
                headers={"Connection": "close"},
            )  # fmt: skip
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return ApiError(413, TOO_LARGE)
        if (coding := _coding(headers)) not in ("identity", *_CODINGS):
            name = ascii(coding)[:60]
            return ApiError(
                415, f"the Content-Encoding header is {name}; expected {', '.join(_CODINGS)}, identity or none"
            )
        return None

    def _limited(self, receive: Receive, coding: str) -> Receive:
        """`receive`, decoded, with limits on the size of the body before and after that, and on the time in which it arrives."""
        decoder = zlib.decompressobj(_CODINGS[coding]) if coding in _CODINGS else None
        size = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS

        async def limited() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, f"the body is incomplete; expected all of it within {BODY_SECONDS:.0f} s"
                ) from None
            complete = not message.get("more_body", False)
            body = message.get("body", b"")
            if decoder is not None and message["type"] == "http.request":
                body = _decoded(decoder, body, complete, MAX_BODY - size)
            size += len(body)
            if size > MAX_BODY:
                raise HTTPException(413, TOO_LARGE)
            return {**message, "body": body}

        return limited


def _decoded(decoder: "zlib._Decompress", part: bytes, is_last: bool, most: int) -> bytes:
    """The next part of a compressed body, up to one byte more than `most`. Raises HTTPException."""
    reason = "it ends too early"
    try:
        body = decoder.decompress(part, most + 1)
        if len(body) > most or (not decoder.unused_data and (decoder.eof or not is_last)):
            return body
        reason = "bytes follow its end" if decoder.unused_data else reason
    except zlib.error as error:
        reason = " ".join(str(error).split())
    raise HTTPException(
        400, f"the body is not what the Content-Encoding header says: {reason}; expected one whole stream"
    )


def _coding(headers: Headers) -> str:
    return headers.get("content-encoding", "identity").strip().lower()


def host_name(host: str) -> str:
    """The name of a Host header, without its port."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name.lower()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    return address == "localhost" or ((found := _address(address)) is not None and found.is_loopback)


def _given_key(headers: Headers) -> bytes:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return headers.get("x-api-key", "").encode("latin-1", "replace")


def _with_headers(send: Send) -> Send:
    """`send`, with more headers in every response: an id, which OpenAI's clients report, and restrictions for browsers."""
    added: dict[str, Any] = {
        "x-request-id": f"req_{secrets.token_hex(12)}",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
    }

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(added)
        await send(message)

    return with_headers


# A body with fewer bytes cannot have too many values.
SHORT_BODY = 2**18


class BoundedRoute(APIRoute):
    """A route whose JSON body may have MAX_VALUES values. Of 8 MiB, a list of empty lists would stop the server for 2 s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            if self.body_field is not None:
                try:
                    body = await request.body()
                except ClientDisconnect:
                    return Response(status_code=499)  # no one reads it
                if len(body) >= SHORT_BODY:
                    await check_values(body)
            return await handle(request)

        return bounded
