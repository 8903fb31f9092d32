"""uvicorn as this application runs it: bounded connections, and an end of the server that every client understands."""

import asyncio
import contextlib
import socket
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from .connections import BoundedConnection, ConnectionLimits, Connections
from .open_requests import OpenRequests

# h11 reads this many bytes before it gives up on a head. The guard's own limit is far below it and is answered as an API error.
HEADER_BYTES = 64 * 2**10
# Seconds that clients get, when the time of the open requests is over, to take the ends of their answers.
LAST_SECONDS = 10.0
LOOK_SECONDS = 0.1  # between two looks for a second Ctrl-C
FORCED_SECONDS = 1.0  # that the application gets after a second Ctrl-C


def make_server(
    app: FastAPI, host: str, port: int, *, drain: float = 30, limits: ConnectionLimits | None = None
) -> "Server":
    """The server of an application of `create_app`. drain: seconds that open requests get to finish when it stops."""
    limits = limits or ConnectionLimits()
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=partial(BoundedConnection, Connections(limits)),  # type: ignore[arg-type]
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=round(limits.idle_seconds),
        timeout_graceful_shutdown=round(drain + LAST_SECONDS + 5),
        server_header=False,
        # Nothing here relies on a client's address but the limit on its connections, and a proxy header can claim any.
        proxy_headers=False,
        access_log=False,
        log_config=None,
    )
    return Server(config, app.state.open_requests, drain)


class Server(uvicorn.Server):
    """A server that ends what is open when its time to finish is over, instead of cancelling it."""

    def __init__(self, config: uvicorn.Config, requests: OpenRequests, drain: float) -> None:
        super().__init__(config)
        self._requests = requests
        self._drain = drain

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._end_open_requests())
        whole = asyncio.create_task(super().shutdown(sockets))
        try:
            # uvicorn itself looks for a second Ctrl-C until the connections are closed, and not while the application ends.
            while not whole.done() and not self.force_exit:
                await asyncio.wait([whole], timeout=LOOK_SECONDS)
            if self.force_exit:
                self._requests.end()
                await asyncio.sleep(LOOK_SECONDS)  # in which the open requests' errors are sent
                self._abort_connections()
                # Else uvicorn would log the end of the application as a fault. A step that never ends is not waited for.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.lifespan.shutdown(), FORCED_SECONDS)
        finally:
            whole.cancel()  # unless it is done
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending
            with contextlib.suppress(asyncio.CancelledError):
                await whole

    async def _end_open_requests(self) -> None:
        self._requests.end(idle=True)
        await asyncio.sleep(self._drain)
        self._requests.end()
        await asyncio.sleep(LAST_SECONDS)
        # Clients that do not read. Their requests end with them.
        self._abort_connections()

    def _abort_connections(self) -> None:
        connections: set[Any] = self.server_state.connections
        for connection in list(connections):
            connection.transport.abort()
