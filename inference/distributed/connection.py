"""How the ranks that torchrun has started find each other's sockets: rank 0 listens, the others connect."""

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from .channel import Channel, MessageKind

START_SECONDS = 300.0  # ranks may start one after the other, from a slow disk
_ADDRESS = "deepseek-v32/rank-0"  # the store's key for the path of rank 0's socket


def accept_ranks(store: Any, size: int) -> dict[int, Channel]:
    """Let the other ranks connect, through a socket in a directory that only this user may enter. The channels by rank."""
    # The address of such a socket has room for 107 bytes, which a long TMPDIR would exceed.
    parent = "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 70 else None
    channels: dict[int, Channel] = {}
    with tempfile.TemporaryDirectory(prefix="deepseek-v32-", dir=parent) as directory:
        path = str(Path(directory) / "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(path)
            server.listen(size)
            server.settimeout(START_SECONDS)
            store.set(_ADDRESS, path)
            while len(channels) < size - 1:
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, size)) - channels.keys())
                    raise ValueError(
                        f"ranks {missing} have not connected within {START_SECONDS:.0f} s; expected all {size} ranks"
                    ) from None
                connection.settimeout(None)
                channel = Channel(connection)
                channels[channel.receive().values["rank"]] = channel
    return channels


def connect_to_rank_0(store: Any, rank: int) -> Channel:
    """This rank's channel to rank 0."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(store.get(_ADDRESS).decode())
    channel = Channel(connection)
    channel.send(MessageKind.REPLY, {"rank": rank})
    return channel
