"""Campaign: mixed requests for minutes or an hour. The memory of the server must stay flat."""

import asyncio
import random
import time
from collections import Counter
from statistics import median
from typing import Any

from .fuzz_requests import Requests
from .live_server import LiveServer, live_server

CLIENTS = 8
SAMPLE_SECONDS = 2.0
# The allocator, caches of compiled patterns and of pages that gradio keeps may fill up meanwhile.
MIB = 64.0


async def load(seed: int, seconds: float, server: LiveServer, least: int = 0) -> dict[str, Any]:
    """Mixed requests until `seconds` have passed and `least` requests have been answered, however slow the machine is."""
    end = time.monotonic() + seconds
    kinds: Counter[str] = Counter()
    samples: list[float] = []

    async def client(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        requests = Requests(rng, server)
        while time.monotonic() < end or sum(kinds.values()) < least:
            kind = rng.choice(("answer", "stream", "left", "long text", "score", "fuzz", "fuzz"))
            kinds[kind] += 1
            body: dict[str, Any] = {
                "prompt": [rng.randrange(10, 2000) for _ in range(rng.choice((1, 30, 300)))], "max_tokens": rng.randrange(1, 60),
                "stream": kind != "answer",
            }  # fmt: skip
            if kind == "fuzz":
                await server.send(requests.draw()[1], 1.0)
            elif kind == "long text":
                await server.ask("POST", "/tokenize", {"prompt": "The door code is 4815. " * rng.randrange(1, 60_000)})
            elif kind == "score":
                await server.ask("POST", "/v1/completions", {**body, "stream": False, "echo": True, "logprobs": 2})
            else:
                await server.send(
                    server.request("POST", "/v1/completions", body), rng.random() if kind == "left" else 60.0
                )

    async def watch() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(SAMPLE_SECONDS)
            if (memory := server.memory()) is not None:
                samples.append(memory)

    await asyncio.gather(watch(), *map(client, range(CLIENTS)))
    failures: list[dict[str, Any]] = []
    # The first third fills caches.
    settled = samples[len(samples) // 3 :]
    parts = [settled[i * len(settled) // 4 : (i + 1) * len(settled) // 4] for i in range(4)]
    medians = [round(median(part), 1) for part in parts if part]
    if len(medians) == 4 and medians[3] - medians[0] > MIB:
        failures.append(
            {"why": f"memory grew from {medians[0]} to {medians[3]} MiB; expected a growth of at most {MIB}"}
        )
    if not await server.idle():
        failures.append({"why": "the server is not idle 30 s after the last request"})
    failures += [{"why": f"the log has {line[:300]}"} for line in server.complaints()]
    return {
        "minutes": round(seconds / 60, 1), "requests": dict(kinds), "mib_by_quarters_of_the_last_two_thirds": medians,
        "mib_first": round(samples[0], 1) if samples else None, "failures": failures,
    }  # fmt: skip


def run(seed: int, count: int) -> dict[str, Any]:
    """`count` seconds of mixed requests to a server of its own."""
    with live_server("--max-model-len", 2048) as server:
        return asyncio.run(load(seed, count, server))
