"""HTTP as bytes on a socket, for requests that no client library would send."""

import contextlib
import json
import socket
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A response: the first of those that came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
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


def parse(received: bytes) -> Answer:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body[: int(headers.get("content-length", len(body)))])


def ask(url: str, request: bytes) -> Answer:
    """The answer to these bytes. The server must close the connection after it."""
    with connect(url) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        return parse(read_all(connection))
