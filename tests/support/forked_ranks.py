"""Ranks and single programs forked from one process that has already imported torch and the package.

A program that starts by itself needs two seconds of CPU time for its imports, more than most tests' work. Tests of how processes
start and end use `support.job.Job` or `subprocess` instead.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer

from support.job import ENVIRONMENT, Ended, free_port

# Each line of its input is a job. It answers with the ranks' process ids, then with their exit codes.
TEMPLATE = """
import json, os, sys
import torch.distributed
from deepseek_v32.inference import LLM

for line in sys.stdin:
    job = json.loads(line)
    ranks = []
    for environment, out, err in job["ranks"]:
        rank = os.fork()
        if rank == 0:
            os.environ.update(environment)
            for number, path in enumerate((os.devnull, out, err)):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
            sys.argv = ["-c", *job["arguments"]]
            exec(job["program"], {"__name__": "__main__"})
            sys.exit()
        ranks.append(rank)
    print(json.dumps(ranks), flush=True)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]), flush=True)
"""


@cache
def _template() -> subprocess.Popen[str]:
    """The process to fork from. It ends when its input does, at the latest with the tests."""
    command = [sys.executable, "-c", TEMPLATE]
    return subprocess.Popen(
        command, env=os.environ | ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _abort(processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # of ranks that have ended
            os.kill(process, signal.SIGABRT)  # faulthandler prints where it hangs


def run_ranks(
    size: int, program: str, *arguments: object, settings: dict[str, str] | None = None, seconds: float = 120.0
) -> list[Ended]:
    """Run a program as the ranks of one job; their ends in the order of ranks.

    settings: environment variables, in place of those that torchrun sets. Ranks that still run after `seconds` are aborted.
    """
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | (settings or {})
    environments = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    return _run(environments, program, arguments, seconds)


def run_program(program: str, *arguments: object, seconds: float = 120.0) -> Ended:
    """The same for one process that is no rank."""
    return _run([{}], program, arguments, seconds)[0]


def _run(
    environments: list[dict[str, str]], program: str, arguments: tuple[object, ...], seconds: float
) -> list[Ended]:
    template = _template()
    assert template.stdin is not None and template.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [(Path(folder, f"{rank}.out"), Path(folder, f"{rank}.err")) for rank in range(len(environments))]
        ranks = [(own, *map(str, paths)) for own, paths in zip(environments, files, strict=True)]
        job = {"program": program, "arguments": [str(argument) for argument in arguments], "ranks": ranks}
        template.stdin.write(json.dumps(job) + "\n")
        template.stdin.flush()
        processes = json.loads(template.stdout.readline())
        watchdog = Timer(seconds, _abort, [processes])
        watchdog.start()
        try:
            codes = json.loads(template.stdout.readline())
        finally:
            watchdog.cancel()
        return [Ended(code, out.read_text(), err.read_text()) for code, (out, err) in zip(codes, files, strict=True)]
