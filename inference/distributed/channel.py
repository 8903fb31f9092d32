"""Messages between the ranks of a job: a JSON object and arrays of numbers, over a socket.

Unlike a collective, a socket reports at once, and always, that the process at its other end has ended.
"""

import json
import socket
import struct
import threading
from collections.abc import Sequence
from enum import StrEnum
from operator import index
from typing import Any, NamedTuple

import numpy as np

_SIZES = struct.Struct("<QQ")  # bytes of the JSON object, bytes of all arrays


class MessageKind(StrEnum):
    """Every kind of message, and the values and arrays that it carries."""

    # From rank 0 to the other ranks, in this order. `Worker.handle` does what they say.
    LOAD = "load"  # load the model. Values: ModelSource.to_json. Reply: empty, when it is loaded.
    COUNT_PAGES = "count pages"  # count the pages that fit in memory. Values: a CacheBudget. Reply: pages.
    START = "start"  # allocate the caches and make the runner. Values: Limits.
    FILL_CACHES = "fill caches"  # fill the caches with random entries. Only benchmarks send it.
    # Run one batch. Values: policies (new ones), decodes, draft_tokens, draft_entries, takes_logits, inspect, and in plans the
    # number of each observer's arrays. Arrays: a BatchUpdate, then the observers'.
    STEP = "step"
    DRAFT = "draft"  # draft after that step. Values: whether any request is not greedy.
    # From rank 0 to the other ranks, at the end of the job.
    END = "end"  # all work is done: leave in order
    ABORT = "abort"  # the job has failed: exit now, without a message to the user
    # From another rank to rank 0.
    REPLY = "reply"  # the answer to LOAD or COUNT_PAGES; at first, the rank that has connected. Values: rank or pages.
    FAILED = "failed"  # an exception ended this rank's work. Values: text, one line for the user.


class Message(NamedTuple):
    kind: MessageKind
    values: dict[str, Any]  # JSON values
    arrays: list[np.ndarray]


def pack(kind: MessageKind, values: dict[str, Any] | None = None, arrays: Sequence[np.ndarray] = ()) -> bytes:
    header = {"kind": kind, "values": values or {}, "arrays": [[array.dtype.str, array.shape] for array in arrays]}
    head = json.dumps(header, default=index).encode()  # numpy's integers, too
    body = b"".join(array.tobytes() for array in arrays)
    return _SIZES.pack(len(head), len(body)) + head + body


class Channel:
    """One end of a connection. Any thread may send; one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, kind: MessageKind, values: dict[str, Any] | None = None) -> None:
        """Send a message without arrays. OSError if the other end is closed."""
        self.send_packed(pack(kind, values))

    def send_packed(self, data: bytes) -> None:
        """Send the bytes of `pack`; the same bytes may go to several channels."""
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> Message:
        """Wait for the next message. EOFError if the other end is closed."""
        head, body = _SIZES.unpack(self._read(_SIZES.size))
        header: dict[str, Any] = json.loads(self._read(head))
        data, arrays, offset = self._read(body), [], 0
        for dtype, shape in header["arrays"]:
            array = np.frombuffer(data, dtype, count=int(np.prod(shape)), offset=offset).reshape(shape)
            arrays.append(array)
            offset += array.nbytes
        return Message(MessageKind(header["kind"]), header["values"], arrays)

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
                raise EOFError("the other end of the channel is closed")
            view = view[count:]
        return bytes(data)
