"""A server to measure, and a client that uses little of the machine."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_MODEL_LEN = 1024
PROMPT_TOKENS = 64
USED_PAGES = re.compile(rb'^deepseek_v32_pages\{state="used"\} (\S+)', re.MULTILINE)


class Client:
    """HTTP/1.1 with little work per event, because on a small machine the client's work slows the server down."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, float, bytes]:
        """(status, seconds until the status arrived, everything after the status line)."""
        start = time.perf_counter()
        reader, writer = await self.open(path, body)
        status = int((await reader.readline()).split()[1])
        seconds = time.perf_counter() - start
        rest = await reader.read()
        writer.close()
        return status, seconds, rest

    async def open(
        self, path: str, body: dict[str, Any] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        return reader, writer

    async def used_pages(self) -> int:
        found = USED_PAGES.search((await self.ask("/metrics"))[2])
        assert found is not None
        return int(float(found[1]))


@contextmanager
def server(model: Path | None, threads: int | None, *arguments: str) -> Iterator[Client]:
    """`deepseek-v32 serve` on a free port. threads: of the model; None: as it decides by itself."""
    command = [str(Path(sys.executable).with_name("deepseek-v32")), "serve", "--no-chat", "--port", "0", "--drain", "0"]
    command += ["--device", "cpu", "--max-model-len", str(MAX_MODEL_LEN), *arguments]
    command += [] if model is None else ["--model", str(model)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log, env=environment)
        try:
            while True:
                time.sleep(0.1)
                log.seek(0)
                text = log.read()
                if found := re.search(r"running on http://127.0.0.1:(\d+)", text):
                    break
                assert process.poll() is None, text
            yield Client(int(found[1]))
        finally:
            process.terminate()
            process.wait()


def prompts(count: int, vocab_size: int, length: int = PROMPT_TOKENS) -> list[list[int]]:
    """`count` random prompts, so that none is found in reused pages."""
    return [[random.randrange(10, vocab_size) for _ in range(length)] for _ in range(count)]
