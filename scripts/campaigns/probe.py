"""A client that asks /health and /v1/models in turns. In the campaigns' own process, their work would count as waiting.

python probe.py HOST PORT [KEY]      # ends when its standard input does, and prints the seconds of each answer as JSON
"""

import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE = 0.02


@contextmanager
def probing(host: str, port: int, key: str | None) -> Iterator[list[float]]:
    """The seconds of all answers, once the block is over; infinity for another status than 200."""
    seconds: list[float] = []
    command = [sys.executable, __file__, host, str(port), *([key] if key is not None else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield seconds
    finally:
        out, _ = process.communicate("")
    seconds += json.loads(out)


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
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        seconds += [ask(host, port, path, key) for path in ("/health", "/v1/models")]
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
