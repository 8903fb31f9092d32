"""Messages between the ranks of a job on one machine: a JSON object with arrays of numbers, over a local socket.

A socket says at once, and always, when the process at its other end is gone, which collectives do not.
"""

import json
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

_SIZES = struct.Struct("<QQ")  # bytes of the object, bytes of all arrays


def pack(message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """A message as it is sent."""
    head = json.dumps(message | {"arrays": [[array.dtype.str, array.shape] for array in arrays]}).encode()
    body = b"".join(array.tobytes() for array in arrays)
    return _SIZES.pack(len(head), len(body)) + head + body


class Channel:
    """One end. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        """OSError if there is nobody at the other end."""
        self.send_packed(pack(message, arrays))

    def send_packed(self, data: bytes) -> None:
        """A message of `pack`, which may go to several."""
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The next message, waited for. EOFError if the other end is gone."""
        head, body = _SIZES.unpack(self._read(_SIZES.size))
        message: dict[str, Any] = json.loads(self._read(head))
        data, arrays, offset = self._read(body), [], 0
        for dtype, shape in message.pop("arrays"):
            array = np.frombuffer(data, dtype, count=int(np.prod(shape)), offset=offset).reshape(shape)
            arrays.append(array)
            offset += array.nbytes
        return message, arrays

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError:
                count = 0
            if not count:
                raise EOFError("the other end is gone")
            view = view[count:]
        return bytes(data)
