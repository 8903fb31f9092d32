"""How the ranks reach each other: as children of rank 0, or started by torchrun, through a Unix socket or over TCP.

Traffic over TCP is not encrypted, like that of NCCL and torch's store: it belongs into a private network.
"""

import hmac
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .channel import Channel, MessageKind

START_SECONDS = 300.0  # ranks may start one after the other, from a slow disk
_ADDRESS = "deepseek-v32/rank-0"  # the store's key for rank 0's address: JSON of (a path or [host, port], token)
_TOKEN_BYTES = 32
_TOKEN_SECONDS = 5.0  # the time that a connection has to show the token
# A machine that is switched off says nothing. TCP asks after 10 idle seconds, then every 5, and gives up after 3 questions.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def accept_ranks(store: Any, size: int, host: str | None) -> dict[int, Channel]:
    """Let the other ranks connect, each with the store's token. host: this machine's address; None: all ranks are here."""
    token = secrets.token_bytes(_TOKEN_BYTES)
    channels: dict[int, Channel] = {}
    deadline = time.monotonic() + START_SECONDS
    with _server(host) as server:
        server.listen(size)
        address = server.getsockname()
        store.set(_ADDRESS, json.dumps([address if host is None else address[:2], token.hex()]))
        while len(channels) < size - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, size)) - channels.keys())
                problem = f"have not connected within {START_SECONDS:.0f} s; expected all {size} ranks"
                raise ValueError(f"ranks {missing} {problem}") from None
            if _shows(connection, token):
                _tune(connection)
                channel = Channel(connection)
                channels[channel.receive().values["rank"]] = channel
            else:
                connection.close()
    return channels


def connect_to_rank_0(store: Any, rank: int) -> Channel:
    """This rank's channel to rank 0. ValueError if rank 0 cannot be reached."""
    address, token = json.loads(store.get(_ADDRESS))
    try:
        if isinstance(address, str):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(address)
        else:
            connection = socket.create_connection((address[0], address[1]), timeout=START_SECONDS)
    except OSError as error:
        raise ValueError(
            f"rank {rank} cannot reach rank 0 at {address} ({error}); expected MASTER_ADDR to be an address of rank 0's machine "
            "that the other machines reach"
        ) from error
    _tune(connection)
    connection.sendall(bytes.fromhex(token))
    channel = Channel(connection)
    channel.send(MessageKind.REPLY, {"rank": rank})
    return channel


@contextmanager
def _server(host: str | None) -> Iterator[socket.socket]:
    with ExitStack() as stack:
        if host is None:
            # The address of such a socket has room for 107 bytes, which a long TMPDIR would exceed.
            parent = "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 70 else None
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="deepseek-v32-", dir=parent))
            family, address = socket.AF_UNIX, str(Path(directory) / "socket")
        else:
            family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]  # type: ignore[assignment]
        server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        server.bind(address)
        yield server


def _shows(connection: socket.socket, token: bytes) -> bool:
    """Tell whether a connection begins with the token, and read nothing else of it."""
    shown = b""
    deadline = time.monotonic() + _TOKEN_SECONDS
    try:
        while len(shown) < len(token):
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            part = connection.recv(len(token) - len(shown))
            if not part:
                return False
            shown += part
    except OSError:
        return False
    return hmac.compare_digest(shown, token)


def _tune(connection: socket.socket) -> None:
    """No time limit; over TCP, no waiting for more to send, and an end when the other machine is gone."""
    connection.settimeout(None)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # not on every system
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


PROGRAM = "deepseek_v32.inference.distributed.child_main"


class Children:
    """Ranks 1 to size - 1: processes of a session of their own, which run PROGRAM, no script, and end with this one."""

    def __init__(self, size: int) -> None:
        # Only for the addresses of the collectives. torch would listen on all interfaces, so it gets a socket that does not.
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        self.store = dist.TCPStore(  # type: ignore[attr-defined]  # public, though not declared so
            *("127.0.0.1", port, None, True, timedelta(seconds=START_SECONDS)),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        # On a CPU the ranks share this process's threads; but OMP_NUM_THREADS is each rank's, as under torchrun.
        self._threads = torch.get_num_threads()
        threads = self._threads if "OMP_NUM_THREADS" in os.environ else max(self._threads // size, 1)
        self.channels: dict[int, Channel] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        # The children import what this process does, from where it does. An empty entry stands for the working directory.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        try:
            for rank in range(1, size):
                own, other = socket.socketpair()
                with other:
                    self.channels[rank] = Channel(own)
                    numbers = map(str, (os.getpid(), other.fileno(), port, rank, size))
                    process = subprocess.Popen(
                        [sys.executable, "-P", "-m", PROGRAM, *numbers],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        pass_fds=[other.fileno()],
                        start_new_session=True,
                    )
                    self.processes.append(process)
        except BaseException:
            self.kill()
            self.wait(0)
            raise
        torch.set_num_threads(threads)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def wait(self, seconds: float) -> None:
        """Wait until they have ended; after `seconds`, kill the remaining ones."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))
            process.kill()  # does nothing to a process that has ended
            process.wait()
        torch.set_num_threads(self._threads)
