"""Jobs of several processes: under torchrun, or started one by one, so that no agent ends the others when one dies."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "PYTHONFAULTHANDLER": "1"}

# The first lines of a program: another process may take longer to report why the job ends.
PATIENT = "from deepseek_v32.inference.distributed import job; job.GRACE_SECONDS = 3\n"


@dataclass
class Ended:
    """Exit code, standard output and standard error of a process that has ended."""

    code: int
    out: str
    err: str


class Job:
    """Processes that run the same program as the ranks of one job."""

    def __init__(self, size: int, program: str, *arguments: object) -> None:
        port = free_port()
        command = [sys.executable, "-c", program, *map(str, arguments)]
        path = os.pathsep.join([SCRIPTS, *filter(None, [os.environ.get("PYTHONPATH")])])  # some use demo_model
        shared = {"PYTHONPATH": path, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.processes = [
            subprocess.Popen(
                command,
                env=os.environ | ENVIRONMENT | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def wait(self, seconds: float = 120.0) -> list[Ended]:
        """Wait for all processes; their ends in the order of ranks. AssertionError if one still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        late = False
        for process in self.processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                late = True
                process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
        ended = [Ended(process.wait(), *process.communicate()) for process in self.processes]
        assert not late, f"a rank still runs after {seconds} s: {ended}"
        return ended

    def read_line(self, rank: int) -> str:
        """The next line of a rank's standard output."""
        stream = self.processes[rank].stdout
        assert stream is not None
        return stream.readline().strip()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


def free_port() -> int:
    """A free port below the range that systems assign by themselves, so that no other process takes it before rank 0 does."""
    while True:
        port = random.randrange(20_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            pass


def torchrun(size: int, *arguments: object) -> list[str]:
    """The command line that runs a program under torchrun."""
    program = Path(sys.executable).with_name("torchrun")
    return [str(program), "--standalone", "--nproc-per-node", str(size), *map(str, arguments)]
