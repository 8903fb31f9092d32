"""The program of a rank that rank 0 has started: `python -m … PARENT DESCRIPTOR PORT RANK SIZE`. See `connection.Children`."""

import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta

PARENT_SECONDS = 1.0  # between two looks at whether the parent lives


def main() -> None:
    parent, descriptor, port, rank, size = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 decides what ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    # Imported here: it takes seconds, in which the parent may end.
    import torch.distributed as dist

    from .channel import Channel
    from .connection import START_SECONDS
    from .job import Follower, Place
    from .worker import Worker

    store = dist.TCPStore(  # type: ignore[attr-defined]  # public, though not declared so
        *("127.0.0.1", port, None, False, timedelta(seconds=START_SECONDS)), wait_for_workers=False
    )
    channel = Channel(socket.socket(fileno=descriptor))
    job = Follower(store, Place(rank, size, local_rank=rank), channel, is_child=True)
    job.follow(Worker(job).handle)


def _end_with(parent: int) -> None:
    """End with the parent. Where it has forked, the channel stays open; PR_SET_PDEATHSIG comes with the end of a thread."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
