"""A client that asks /health and /v1/models in turns. In the campaigns' own process, their work would count as waiting.

python probe.py HOST PORT [KEY]      # asks from a line on its standard input to its end; prints the seconds of each answer as JSON
"""

import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

PAUSE = 0.02
READY = "ready"


@dataclass
class Probe:
    """The process that asks. It asks at least once each, however slow the machine is."""

    _orders: IO[str]
    # Of all answers, once its block is over; infinity for another status than 200.
    seconds: list[float] = field(default_factory=list)

    def begin(self) -> None:
        self._orders.write("\n")
        self._orders.flush()


@contextmanager
def probing(host: str, port: int, key: str | None) -> Iterator[Probe]:
    """A probe, which waits for its `begin`: a new process takes a while, in which what is to be observed might be over."""
    command = [sys.executable, __file__, host, str(port), *([key] if key is not None else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline().strip() != READY:
            raise RuntimeError(f"the probe ended with status {process.wait()}")
        probe = Probe(process.stdin)
        yield probe
    finally:
        out, _ = process.communicate()
    probe.seconds += json.loads(out)


def ask(host: str, port: int, path: str, key: str | None) -> float:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    began = time.perf_counter()
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}", "Connection": "close"})
        response = connection.getresponse()
        response.read()
        return time.perf_counter() - began if response.status == 200 else float("inf")
    except OSError:
        return float("inf")
    finally:
        connection.close()


def main() -> None:
    host, port, key = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
    seconds = []
    print(READY, flush=True)
    is_over = not sys.stdin.readline()
    while not is_over:
        seconds += [ask(host, port, path, key) for path in ("/health", "/v1/models")]
        is_over = bool(select.select([sys.stdin], [], [], PAUSE)[0])
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
