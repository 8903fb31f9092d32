"""The other ranks as child processes of rank 0, for a job in one program."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from .channel import Channel
from .connection import START_SECONDS

PROGRAM = "deepseek_v32.inference.distributed.child_main"


class Children:
    """The processes of ranks 1 to size - 1 on this machine, and the channels to them.

    They run PROGRAM, not the user's script: it may be a notebook, and needs no `if __name__ == "__main__"`. Ctrl-C in a terminal
    does not reach them, because they are a session of their own. They end when this process ends, however it does.
    """

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
                    self.processes.append(
                        subprocess.Popen(
                            [sys.executable, "-P", "-m", PROGRAM, *numbers],
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            pass_fds=[other.fileno()],
                            start_new_session=True,
                        )
                    )
        except BaseException:
            self.kill()
            self.wait(0)
            raise
        torch.set_num_threads(threads)

    def kill(self) -> None:
        """End them at once, without waiting for it."""
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
