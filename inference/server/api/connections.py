"""Limits on connections: their number, the time for a request's head, and the time that an answer waits for its client.

uvicorn leaves these to a proxy: a connection that sends half a head stays for ever, and beyond `limit_concurrency` every client
gets a plain 503.
"""

import asyncio
import json
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from .errors import ApiError, overloaded


@dataclass(frozen=True)
class ConnectionLimits:
    # Below the 1024 open files that most systems allow.
    total: int = 900
    # From one address; 0: no limit, for a server behind a proxy, whose address all clients have.
    per_peer: int = 256
    # From the opening of a connection, or the first byte after a response, to the end of the request's head.
    head_seconds: float = 10.0
    # Between two requests.
    idle_seconds: float = 30.0
    # In which a client must take some of its answer while more than the system's buffers hold waits for it.
    stalled_seconds: float = 120.0


# A connection that waits for a head gives its place to a new one after this many seconds.
REPLACEABLE_SECONDS = 1.0
# Connections above the limits that are refused properly, after their head has been read and their key checked.
SURPLUS = 64
SURPLUS_SECONDS = 2.0
# Refused connections that are kept open until their client has read the refusal, or this long.
MAX_LINGERING = 256
LINGER_SECONDS = 2.0
# Bytes that the system may keep for a client; by itself it keeps up to 4 MB. What does not fit waits in the process.
SEND_BUFFER = 2**18


class Connections:
    """The connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.surplus = 0
        self.lingering = 0
        self._open: set[BoundedConnection] = set()
        self._peers: Counter[str] = Counter()
        # Connections that wait for a head, and since when; the longest first.
        self.waiting: dict[BoundedConnection, float] = {}

    def add(self, connection: "BoundedConnection") -> str | None:
        """Count a new connection. Returns why it must be refused, if no other one could be closed for it."""
        limits, peer = self.limits, connection.peer
        self._open.add(connection)
        self._peers[peer] += 1
        if limits.per_peer and self._peers[peer] > limits.per_peer and not self._replace(peer):
            return (
                f"this address has {limits.per_peer} open connections; expected fewer, which is all that one address may have "
                "(--connections-per-peer)"
            )
        if len(self._open) > limits.total and not self._replace(None):
            return f"this server has {limits.total} open connections; expected fewer, which is all that it takes"
        return None

    def remove(self, connection: "BoundedConnection") -> None:
        """A closing connection no longer counts, although the system may take a while to close it."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        self.surplus -= connection.is_surplus
        self._peers[connection.peer] -= 1
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]
        self.waiting.pop(connection, None)

    def _replace(self, peer: str | None) -> bool:
        """Close the connection that has waited for a head the longest, of this peer or of all; False if there is none."""
        latest = time.monotonic() - REPLACEABLE_SECONDS
        for connection, since in self.waiting.items():
            if since > latest:
                return False
            if peer is None or connection.peer == peer:
                connection.give_way()
                return True
        return False


class BoundedConnection(H11Protocol):
    """uvicorn's connection under the limits of `Connections`. Errors in a request's head are answered as API errors."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.peer = ""
        self._all = connections
        self._limits = connections.limits
        self.is_surplus = self._head_begun = self._lingers = False
        # Of the head, or of the pause between two requests.
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        if (own_socket := transport.get_extra_info("socket")) is not None:
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        refusal = self._all.add(self)
        if refusal is None:
            self._wait(self._limits.head_seconds)
            return
        if self._all.surplus >= SURPLUS:
            self._answer(overloaded(refusal), lingers=True)
            return
        self.is_surplus = True
        self._all.surplus += 1
        # The guard refuses the request with it, once the key has been checked.
        self.app_state = {**self.app_state, "refusal": refusal}
        self._wait(SURPLUS_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._lingers:
            return
        if self._head_timer is not None and not self._head_begun:
            self._head_begun = True
            self._start_head_timer(SURPLUS_SECONDS if self.is_surplus else self._limits.head_seconds)
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._note_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._unset_keepalive_if_required()
        self._all.remove(self)
        self._all.lingering -= self._lingers
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Close the connection, which waits for a head, for a new one."""
        if self.cycle is None:
            self._answer(
                overloaded("this connection has waited for a request the longest; expected one at once"), lingers=True
            )
        else:
            self._close()

    def _time_out(self) -> None:
        if self.is_surplus:
            self._answer(overloaded(self.app_state["refusal"]), lingers=True)
        elif self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
            seconds = self._limits.head_seconds
            self._answer(ApiError(408, f"the request's head is incomplete; expected all of it within {seconds:g} s"))
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that h11 could not parse. uvicorn calls this while it handles the error."""
        error = sys.exception()
        if self.cycle is not None and not self.cycle.response_complete:
            # The body of a request that is being answered is malformed. The application sees that the client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        too_large = getattr(error, "error_status_hint", 400) == 431
        reason = " ".join(str(error).split())[:100]
        self._answer(
            ApiError(431 if too_large else 400, f"the request is not HTTP/1.1: {reason}; expected a valid one")
        )

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._close()
        else:
            self.cycle.keep_alive = False

    def _note_request(self) -> None:
        """Start or end the wait for a head, as it is."""
        if self.transport.is_closing():
            return
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if is_busy and self._head_timer is not None:
            self.cycle.keep_alive = not self.is_surplus
            self._stop_head_timer()
            self._all.waiting.pop(self, None)
        elif not is_busy and self._head_timer is None:
            self._wait(self._limits.idle_seconds)

    def _wait(self, seconds: float) -> None:
        self._head_begun = False
        self._start_head_timer(seconds)
        self._all.waiting[self] = time.monotonic()

    def _start_head_timer(self, seconds: float) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(seconds, self._time_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _answer(self, error: ApiError, lingers: bool = False) -> None:
        """Answer outside of any request, and close; `lingers`: once the client has closed, or after LINGER_SECONDS.

        To close at once while the client's request arrives would reset the connection, and the client might not see the answer.
        """
        if not self.transport.is_closing() and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error.body()).encode()
            headers = {
                **error.headers, "Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"
            }  # fmt: skip
            response = h11.Response(
                status_code=error.status, headers=list(headers.items()), reason=STATUS_PHRASES[error.status]
            )
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if lingers and not self.transport.is_closing() and self._all.lingering < MAX_LINGERING:
            self._lingers = True
            self._all.lingering += 1
            self._stop_head_timer()
            self._all.remove(self)
            self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self._close()

    def _close(self) -> None:
        self._stop_head_timer()
        self._all.remove(self)
        self.transport.close()
