"""A server to attack: `deepseek-v32 serve` in a process of its own, or one that runs already."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support.raw_http import Response

from .probe import Probe, probing

COMMAND = Path(sys.executable).with_name("deepseek-v32")
USED_PAGES = re.compile(r'^deepseek_v32_pages\{state="used"\} (\S+)', re.MULTILINE)
# A log may not have these: tracebacks, tasks and protocols that failed, and what uvicorn says about an application's bugs. gradio
# itself prints a traceback for an event whose values do not fit, which is beyond this project.
UNCLEAN = re.compile(
    r"^.*(?:Traceback(?!.*\n.*/gradio/)|Exception in|exception was never retrieved|Fatal error|CRITICAL).*$",
    re.MULTILINE,
)


@dataclass
class LiveServer:
    """A server's address, and a view of it from outside."""

    host: str
    port: int
    key: str | None = None
    # None for a server that was running already: its memory and its log are not seen.
    process: subprocess.Popen[bytes] | None = None
    log_file: IO[bytes] | None = None

    def request(self, method: str, path: str, body: Any = None, *headers: str) -> bytes:
        """A request of these parts. The server is asked to close the connection after it."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Connection: close", *headers]
        if self.key is not None:
            lines.append(f"Authorization: Bearer {self.key}")
        content = b""
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, limit=2**20)

    async def send(self, data: bytes, seconds: float = 60.0) -> Response:
        """Send these bytes on a new connection, and read one response, or until `seconds` have passed."""
        received = bytearray()
        closed = False
        writer = None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                reader, writer = await self.open()
                writer.write(data)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                while part := await reader.read(2**16):
                    received += part
                    if Response(bytes(received), False).is_whole(data.startswith(b"HEAD ")):
                        break
                closed = True
        closed = closed or (writer is not None and writer.is_closing())
        if writer is not None:
            writer.transport.abort()
        return Response(bytes(received), closed)

    async def ask(self, method: str, path: str, body: Any = None, seconds: float = 60.0) -> Response:
        return await self.send(self.request(method, path, body), seconds)

    async def used_pages(self) -> int:
        metrics = await self.ask("GET", "/metrics")
        found = USED_PAGES.search(metrics.body.decode())
        if found is None:
            raise RuntimeError(f"/metrics has status {metrics.status}; expected 200 with the number of used pages")
        return round(float(found[1]))

    async def idle(self, seconds: float = 30.0) -> bool:
        """Wait until nothing runs or waits and no page is used; whether that happened in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(RuntimeError, ValueError):
                state = json.loads((await self.ask("GET", "/health")).body)
                if state.get("running") == state.get("waiting") == 0 and await self.used_pages() == 0:
                    return True
            await asyncio.sleep(0.05)
        return False

    def probing(self) -> AbstractContextManager[Probe]:
        """See `probe.probing`."""
        return probing(self.host, self.port, self.key)

    def memory(self) -> float | None:
        """Resident MiB of the process."""
        if self.process is None:
            return None
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def log(self) -> str:
        if self.log_file is None:
            return ""
        file = self.log_file.fileno()  # whose place is also the one where the server writes: it must not move
        return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")

    def complaints(self) -> list[str]:
        """Lines of the log that no request of a client may cause."""
        return UNCLEAN.findall(self.log())[:20]


@contextlib.contextmanager
def live_server(
    *arguments: object, key: str | None = "the key of this campaign", threads: int = 1
) -> Iterator[LiveServer]:
    """Run `deepseek-v32 serve` with these arguments on a free port, by default with the demo checkpoint."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GRADIO_ANALYTICS_ENABLED": "False"}
    if key is not None:
        environment["DEEPSEEK_V32_API_KEY"] = key
    with tempfile.TemporaryFile() as log:
        command = [str(COMMAND), "serve", "--port", "0", *map(str, arguments)]
        process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, start_new_session=True)
        server = LiveServer("127.0.0.1", 0, key, process, log)
        try:
            while not (found := re.search(r"running on http://127\.0\.0\.1:(\d+)", server.log())):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with status {process.returncode}: {server.log()[-2000:]}")
                time.sleep(0.1)
            server.port = int(found[1])
            yield server
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of the values is; 0 without values."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def running_server(base_url: str, key: str | None) -> LiveServer:
    """A server that runs already."""
    found = re.fullmatch(r"http://([^/:]+|\[[^]]+\])(?::(\d+))?/?", base_url)
    if found is None:
        raise ValueError(f"--base-url is {base_url}; expected http://host:port")
    return LiveServer(found[1].strip("[]"), int(found[2] or 80), key)
