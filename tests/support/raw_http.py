"""HTTP as bytes on a socket, for requests that no client library would send."""

import contextlib
import json
import re
import socket
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    """A server's response. `is_closed`: the response is whole, or the connection was closed; else the time was over."""

    received: bytes
    is_closed: bool = True

    @property
    def final(self) -> bytes:
        """Without the interim response that a client may ask for."""
        return self.received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def head(self) -> bytes:
        return self.final.partition(b"\r\n\r\n")[0]

    @property
    def status(self) -> int | None:
        """None if the server sent nothing, or no HTTP."""
        found = re.match(rb"HTTP/1\.1 (\d{3})", self.final)
        return int(found[1]) if found else None

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def is_whole(self, of_head: bool) -> bool:
        """Tell whether the whole response is there; `of_head`: it answers HEAD and has no body."""
        if self.status is None or b"\r\n\r\n" not in self.final:
            return False
        body = self.final.partition(b"\r\n\r\n")[2]
        if self.headers.get("transfer-encoding") == "chunked":
            return of_head or body.endswith(b"0\r\n\r\n")
        return of_head or len(body) >= int(self.headers.get("content-length", 2**62))

    @property
    def body(self) -> bytes:
        body = self.final.partition(b"\r\n\r\n")[2]
        if self.headers.get("transfer-encoding") != "chunked":
            return body[: int(self.headers.get("content-length", len(body)))]
        parts = []
        while body:
            size, _, rest = body.partition(b"\r\n")
            if not (length := int(size or b"0", 16)):
                break
            parts.append(rest[:length])
            body = rest[length + 2 :]
        return b"".join(parts)

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


def connect(url: str, timeout: float = 10) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=timeout)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            received += part
    return received


def post(path: str, body: Any) -> bytes:
    """A request with a body of JSON."""
    content = json.dumps(body)
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(content)}", "", content]).encode()


def ask(url: str, request: bytes) -> Response:
    """The answer to these bytes. The server must close the connection after it."""
    with connect(url) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        return Response(read_all(connection))
