"""Random requests for the campaign fuzz: bodies, fields, headers, paths, methods and plain bytes."""

import json
import random
from typing import Any

from .live_server import LiveServer

TEXTS = (
    "", "a", "The door code is 4815. ", "\x00", "\ud800", "\u202e", "🙂" * 20, "<think>", "｜DSML｜", "%s%n", "{{7*7}}",
    "../../etc/passwd", "\r\nX: y", "'\"`;--", "a" * 5000, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 700,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 7, 0.0, -0.0, 0.5, 1.5, 1e308, -1e308, 1e-320, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30,
)  # fmt: skip
ODD: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [[[[[[]]]]]], *NUMBERS, *TEXTS)
HEADERS = (
    "Host", "Origin", "Authorization", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade",
    "Expect", "TE", "Trailer", "Content-Encoding", "Accept", "Accept-Encoding", "Accept-Charset", "Accept-Language",
    "Cookie", "Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "Referer", "User-Agent",
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "X-Real-IP",
    "X-HTTP-Method-Override", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-Fetch-Site",
    "Access-Control-Request-Method", "Proxy-Authorization", "Via", "Date", "Keep-Alive", "OpenAI-Organization",
    "X-Request-Id", "X-Gradio-User", "X-Gradio-Server", "X-Unknown",
)  # fmt: skip
VALUES = (
    "", " ", "null", "*", ",", ";", "=", '"', "\\", "http://[", "http://[::1", "http://[::1]", "http://]",
    "http://a\xaab", "//", "://", "http://127.0.0.1:99999999999", "http://user:password@[::1%25eth0]:80",
    "http://\u2100".encode().decode("latin-1"), "[", "]", "[]:1", ":", "::", "127.0.0.1:abc", "localhost", "0", "-1",
    "1", "+5", "5, 5", "5, 6", "0x10", "1e3", "9" * 25, "chunked", "Chunked", "gzip, chunked", "identity", "gzip",
    "close", "keep-alive", "upgrade", "websocket", "h2c", "100-continue", "bytes=0-", "bytes=-1", "bytes=5-1",
    "bytes=0-1,2-3", "bytes=a-b", "application/json", "application/json; charset=utf-16",
    "application/json; charset=\xff", "multipart/form-data", "text/plain", "multipart/form-data; boundary=",
    "application/x-www-form-urlencoded", "application/+json", "a/b/c", "Bearer", "Bearer ", "Basic", "Basic !!",
    "Basic Og==", "Basic " + "A" * 4000, "Digest x", "Bearer \xe9", "a=b; c", "=; =", "a=\xff",
    "Thu, 01 Jan 1970 00:00:00 GMT", "never", "W/\"x\"", "\xff\xfe", "\x80", "\t", "a" * 3000, "%00", "%s%n", "../..",
    "<script>", "{}", "[]", "POST", "GET", "for=\"[::1]\"", "q=2;q=x", "en;q=\xff",
)  # fmt: skip
METHODS = (
    "GET",
    "POST",
    "HEAD",
    "OPTIONS",
    "PUT",
    "DELETE",
    "PATCH",
    "TRACE",
    "CONNECT",
    "get",
    "X",
    "PROPFIND",
    "M-SEARCH",
)
PATHS = (
    "/", "/v1", "/v1/", "/v1/models/", "/v1/models/a/b", "/v1/chat/completions/", "//v1/models", "/V1/MODELS",
    "/v1/models?a=b", "/v1/models#x", "/docs", "/redoc", "/openapi.json", "/metrics/", "/health?x=%ff", "/%00",
    "/%ff%fe", "/..%2f..%2fetc/passwd", "/../../etc/passwd", "/" + "a" * 4000, "/gradio_api/info",
    "/gradio_api/config", "/config", "/theme.css", "/robots.txt", "/manifest.json", "/favicon.ico", "/assets/../x",
    "/static/x", "/assets/%2e%2e/%2e%2e/x", "/static/fonts/%ff", "/svelte/x.js", "/gradio_api/file=/etc/passwd",
    "/gradio_api/upload", "/gradio_api/queue/data", "/gradio_api/queue/data?session_hash=%ff",
    "/gradio_api/startup-events", "*", "http://elsewhere/", "/v1/models/%f0%9f%99%82", "/;a=b", "/?" + "a=b&" * 500,
)  # fmt: skip
GRADIO = (
    "/gradio_api/queue/join",
    "/gradio_api/run/predict",
    "/gradio_api/cancel",
    "/gradio_api/reset",
    "/gradio_api/component_server",
)
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        **CHAT, "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 1, "stop": ["x"], "stream": False, "logprobs": True,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "top_logprobs": 2,
        "response_format": {"type": "text"}, "stream_options": {"include_usage": True}, "tool_choice": "auto",
        "chat_template_kwargs": {"thinking": True},
    },
    "/v1/completions": {
        "prompt": "The code is", "max_tokens": 3, "n": 2, "logprobs": 2, "echo": True, "stop": "x", "top_k": 4,
        "min_p": 0.1, "stop_token_ids": [5], "presence_penalty": 0.1, "frequency_penalty": 0.1, "best_of": 2,
        "repetition_penalty": 1.1, "ignore_eos": True, "stream": False,
    },
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], "max_output_tokens": 3, "seed": 1,
        "instructions": "Be brief.", "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "top_p": 0.9,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "tool_choice": "auto",
        "store": False, "stream": False, "metadata": {"a": "b"},
    },
    "/tokenize": {"prompt": "a b", "add_special_tokens": True, "parse_special_tokens": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}  # fmt: skip


class Requests:
    """Random requests."""

    def __init__(self, rng: random.Random, server: LiveServer) -> None:
        self._rng, self._server = rng, server

    def draw(self) -> tuple[str, bytes]:
        """(kind, bytes)."""
        often = (self._fields, self._headers) * 2
        kinds = (*often, self._bodies, self._bytes, self._paths, self._chat)
        kind = self._rng.choice(kinds)
        return kind.__name__.strip("_"), kind()

    def _fields(self) -> bytes:
        """A body with values that are odd, missing or one too many."""
        path = self._rng.choice(list(BODIES))
        fields = BODIES[path]
        # `max_tokens` bounds what most requests cost.
        names = [
            name
            for name in fields
            if self._rng.random() < 0.4
            or name in ("messages", "prompt", "input", "tokens", "max_tokens", "max_output_tokens")
        ]
        body = {name: fields[name] for name in names}
        for _ in range(self._rng.choice((0, 1, 1, 2, 5))):
            self._spoil(body)
        body["stream"] = self._rng.choice((True, False, body.get("stream")))
        return self._server.request("POST", path, json.dumps(body, allow_nan=True).encode("utf-8", "replace"))

    def _spoil(self, value: Any) -> None:
        """Replace, add or remove something somewhere in a list or an object."""
        rng = self._rng
        while True:
            if not isinstance(value, dict | list) or not value:
                return
            key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
            if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.6:
                copied = value[key].copy()
                value[key] = value = copied
                continue
            break
        change = rng.random()
        if change < 0.7:
            value[key] = rng.choice(ODD)
        elif change < 0.8:
            del value[key]
        elif isinstance(value, dict):
            value[rng.choice(TEXTS)] = rng.choice(ODD)
        else:
            value *= rng.choice((2, 50))

    def _headers(self) -> bytes:
        rng = self._rng
        path = rng.choice(
            ("/health", "/v1/models", "/v1/completions", "/tokenize", "/", "/theme.css", "/gradio_api/info")
        )
        body = BODIES.get(path)
        head, _, content = self._server.request("POST" if body else "GET", path, body).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        for _ in range(rng.choice((1, 1, 2, 4))):
            name = rng.choice(HEADERS)
            value = rng.choice(VALUES)
            if rng.random() < 0.2:
                value = "".join(chr(rng.randrange(256)) for _ in range(rng.randrange(1, 30)))
            lines = [
                line
                for line in lines
                if rng.random() < 0.5 or not line.lower().startswith(name.lower().encode() + b":")
            ]
            lines.insert(rng.randrange(1, len(lines) + 1), f"{name}: {value}".encode("latin-1", "replace"))
        return b"\r\n".join(lines) + b"\r\n\r\n" + content

    def _bodies(self) -> bytes:
        rng = self._rng
        path = rng.choice(list(BODIES))
        body = bytearray(json.dumps(BODIES[path]).encode())
        choice = rng.random()
        if choice < 0.5:
            for _ in range(rng.randrange(1, 6)):
                body[rng.randrange(len(body))] = rng.randrange(256)
        elif choice < 0.7:
            body = body[: rng.randrange(len(body))]
        elif choice < 0.8:
            body = bytearray(rng.randbytes(rng.randrange(300)))
        else:
            body = bytearray(
                rng.choice(
                    (
                        b"[" * 3000,
                        b'{"a":' * 3000,
                        b"9" * 3000,
                        b"-",
                        b"NaN",
                        b'"',
                        b"\xef\xbb\xbf{}",
                        b"{}{}",
                        b"[[],[]]" * 500,
                    )
                )
            )
        return self._server.request("POST", path, bytes(body))

    def _bytes(self) -> bytes:
        """A valid request with some bytes changed, cut, doubled or moved."""
        rng = self._rng
        path = rng.choice(("/health", *BODIES))
        data = bytearray(self._server.request("POST" if path in BODIES else "GET", path, BODIES.get(path)))
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            change = rng.randrange(5)
            if change == 0:
                data[at] = rng.randrange(256)
            elif change == 1:
                data[at:at] = rng.choice((b"\r\n", b"\n", b"\0", b" ", b":", rng.randbytes(5), b"\r\n\r\n"))
            elif change == 2:
                del data[at : at + rng.randrange(1, 30)]
            elif change == 3:
                data[at:at] = data[at : at + rng.randrange(200)]
            else:
                data = data[: at + 1]
            data = data or bytearray(b"\n")
        return bytes(data) if rng.random() < 0.95 else rng.randbytes(rng.randrange(1, 400))

    def _paths(self) -> bytes:
        rng = self._rng
        path = rng.choice((*PATHS, *BODIES, "/health", "/ready", "/metrics", "/v1/models"))
        if rng.random() < 0.3:
            at = rng.randrange(len(path) + 1)
            path = (
                path[:at]
                + rng.choice(("%", "%2", "%zz", "/", "..", "?", "&", "\\", "\x7f", "%0d%0a", "a" * 200))
                + path[at:]
            )
        body = rng.choice((None, None, {}, CHAT, b"x"))
        return self._server.request(rng.choice(METHODS), path.replace(" ", "%20"), body)

    def _chat(self) -> bytes:
        rng = self._rng
        body: Any = {
            "data": [{}, "hi", []],
            "fn_index": 0,
            "session_hash": "a",
            "event_id": "b",
            "trigger_id": 1,
            "component_id": 1,
            "fn_name": "x",
        }
        for _ in range(rng.randrange(4)):
            self._spoil(body)
        return self._server.request(
            "POST", rng.choice(GRADIO), json.dumps(rng.choice((body, body, [], "x"))).encode("utf-8", "replace")
        )
