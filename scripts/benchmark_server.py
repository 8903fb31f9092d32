"""What serving costs beside the engine alone, and how the server behaves when too many ask.

Usage: python scripts/benchmark_server.py [--model DIRECTORY] [--batch 8] [--tokens 256] [--rounds 7] [--clients 32] [--seconds 60]
Prints a table and ends in one JSON line. The server is a process of its own, as is the client; both share the machine.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams

MAX_MODEL_LEN = 1024
PROMPT_TOKENS = 64
RETRY_SECONDS = 0.1  # much sooner than Retry-After says: refusals are what is measured
USED_PAGES = re.compile(rb'^deepseek_v32_pages\{state="used"\} (\S+)', re.MULTILINE)


class Client:
    """HTTP/1.1 in as few instructions as possible: on a small machine a client's work slows the server down."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, float, bytes]:
        """(status, seconds until it came, everything after the head)."""
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
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
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
def server(model: Path | None, *arguments: str) -> Iterator[Client]:
    """`deepseek-v32 serve` on a free port."""
    command = [str(Path(sys.executable).with_name("deepseek-v32")), "serve", "--no-chat", "--port", "0", "--drain", "0"]
    command += ["--device", "cpu", "--max-model-len", str(MAX_MODEL_LEN), *arguments]
    command += [] if model is None else ["--model", str(model)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log)
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


def prompts(count: int, vocab_size: int) -> list[list[int]]:
    """Fresh ones each time: nothing is to be found in reused pages."""
    return [[random.randrange(10, vocab_size) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


def engine_rate(llm: LLM, batch: int, tokens: int) -> float:
    """Tokens a second of LLM.generate."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    start = time.perf_counter()
    llm.generate(prompts(batch, llm.config.vocab_size), params)
    return batch * tokens / (time.perf_counter() - start)


async def streamed_rate(client: Client, vocab_size: int, batch: int, tokens: int) -> float:
    """Tokens a second of as many streams at once, from the first request to the last [DONE]."""

    async def one(prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        status, _, rest = await client.ask("/v1/completions", body)
        assert status == 200 and rest.count(b'"finish_reason": "length"') == 1, rest[-500:]

    chosen = prompts(batch, vocab_size)
    start = time.perf_counter()
    await asyncio.gather(*map(one, chosen))
    return batch * tokens / (time.perf_counter() - start)


async def crowd(client: Client, vocab_size: int, clients: int, seconds: float) -> dict[str, Any]:
    """Clients that ask again as soon as they are answered, and soon after they are refused."""
    statuses: Counter[int] = Counter()
    refusals: list[float] = []
    end = time.perf_counter() + seconds

    async def one() -> None:
        while time.perf_counter() < end:
            body = {
                "prompt": prompts(1, vocab_size)[0],
                "max_tokens": random.randrange(8, 64),
                "stream": random.random() < 0.5,
            }
            status, took, _ = await client.ask("/v1/completions", body)
            statuses[status] += 1
            if status == 503:
                refusals.append(took)
                await asyncio.sleep(RETRY_SECONDS)

    await asyncio.gather(*(one() for _ in range(clients)))
    return {
        "answered": statuses.pop(200, 0),
        "refused": statuses.pop(503, 0),
        "other": dict(statuses),
        "refusal_p50_ms": 1000 * percentile(refusals, 50),
        "refusal_p99_ms": 1000 * percentile(refusals, 99),
        "pages_used_after": await client.used_pages(),
    }


async def cancellations(client: Client, vocab_size: int, count: int) -> list[float]:
    """Seconds from hanging up in the middle of an answer until the server counts no page as used; polling included."""
    times = []
    for prompt in prompts(count, vocab_size):
        body = {"prompt": prompt, "max_tokens": 900, "ignore_eos": True, "stream": True}
        reader, writer = await client.open("/v1/completions", body)
        for _ in range(3):
            await reader.readuntil(b"data: ")
        assert await client.used_pages() > 0
        start = time.perf_counter()
        writer.close()
        while await client.used_pages():
            pass
        times.append(time.perf_counter() - start)
    return times


def percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; the demo without it")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="answers at a time")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--rounds", type=int, default=7, help="of both, in turn; the best counts")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="that the clients go on")
    parser.add_argument("--cancellations", type=int, default=100)
    arguments = parser.parse_args()

    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    llm = LLM(arguments.model, device="cpu", max_model_len=MAX_MODEL_LEN)
    vocab_size = llm.config.vocab_size
    results: dict[str, Any] = {"machine": machine, "model": str(arguments.model or "demo"), "load": os.getloadavg()[0]}

    table = Table("batch", "LLM.generate", "streamed over HTTP", "ratio", title="tokens a second")
    with server(arguments.model) as client:
        for batch in arguments.batch:
            alone, served = [], []
            for _ in range(arguments.rounds + 1):
                alone.append(engine_rate(llm, batch, arguments.tokens))
                served.append(asyncio.run(streamed_rate(client, vocab_size, batch, arguments.tokens)))
            # The best of each: other work on the machine only ever slows a round down. The first one warms both up.
            rates = max(alone[1:]), max(served[1:])
            ratio = rates[1] / rates[0]
            table.add_row(str(batch), f"{rates[0]:.0f}", f"{rates[1]:.0f}", f"{ratio:.1%}")
            results |= {f"generate_{batch}": rates[0], f"streamed_{batch}": rates[1], f"ratio_{batch}": ratio}
        freed = asyncio.run(cancellations(client, vocab_size, arguments.cancellations))
        results |= {"cancel_p50_ms": 1000 * percentile(freed, 50), "cancel_p99_ms": 1000 * percentile(freed, 99)}
    with server(arguments.model, "--max-sequences", "8", "--max-queue", "8") as client:
        results |= asyncio.run(crowd(client, vocab_size, arguments.clients, arguments.seconds))

    console = Console()
    console.print(machine)
    console.print(table)
    table = Table(
        "", "", title=f"{arguments.clients} clients for {arguments.seconds:.0f} s; room for 16", show_header=False
    )
    for name in (
        "answered",
        "refused",
        "other",
        "refusal_p50_ms",
        "refusal_p99_ms",
        "pages_used_after",
        "cancel_p50_ms",
        "cancel_p99_ms",
    ):
        value = results[name]
        table.add_row(name.replace("_", " "), f"{value:.1f}" if isinstance(value, float) else str(value))
    console.print(table)
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in results.items()}
    print(json.dumps(rounded))


if __name__ == "__main__":
    main()
