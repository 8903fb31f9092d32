"""Campaigns: clients that send half a head, that do not read their streams, and that leave."""

import asyncio
import contextlib
import random
import socket
import time
from typing import Any

from .live_server import LiveServer, live_server, quantile

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
# The server closes a head after 10 s and takes new connections in place of waiting ones after 1 s.
HEAD_SECONDS = 10.0
SETTLED_SECONDS = 2.0
# With logprobs, so that little of it fits what the system keeps for a client.
STREAM = {"prompt": "The", "max_tokens": 3000, "ignore_eos": True, "stream": True, "logprobs": 20}
# The server ends a client that takes nothing for 120 s.
STALLED_SECONDS = 120.0
FILL_SECONDS = 120.0
# Its answer waits in the process: 3,000 tokens with 20 alternatives each are 7 MiB of Python's objects.
MIB_PER_READER = 10.0


async def slow_heads(count: int, server: LiveServer) -> dict[str, Any]:
    """`count` connections with half a head, of which each sends a byte now and then."""
    failures: list[dict[str, Any]] = []
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    closed_after: list[float] = []

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while not reader.at_eof():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await reader.read(2**16)
                writer.write(b"a")
        closed_after.append(time.monotonic() - began)
        writer.transport.abort()

    with server.probing() as probe:
        began = time.monotonic()
        for _ in range(count):
            with contextlib.suppress(OSError):
                connections.append(await server.open())
                connections[-1][1].write(HALF)
        dripping = [asyncio.create_task(drip(*connection)) for connection in connections]
        await asyncio.sleep(SETTLED_SECONDS)
        probe.begin()
        _, still_open = await asyncio.wait(dripping, timeout=2 * HEAD_SECONDS + 5)
    seconds = probe.seconds
    if still_open:
        failures.append(
            {"why": f"{len(still_open)} of {len(connections)} half heads are open after {2 * HEAD_SECONDS} s"}
        )
        for task in still_open:
            task.cancel()
    if refused := seconds.count(float("inf")):
        failures.append({"why": f"{refused} of {len(seconds)} others were refused meanwhile"})
    return {
        "half_heads": len(connections), "closed_after_s": round(max(closed_after, default=0), 1), "probes": len(seconds),
        "probe_p99_s": round(quantile(seconds, 0.99), 4), "failures": failures,
    }  # fmt: skip


async def slow_readers(count: int, server: LiveServer, waits: bool, asked: int = 5) -> dict[str, Any]:
    """`count` unread streams, while others ask. `waits`: until the server has ended them."""
    failures: list[dict[str, Any]] = []
    # The caches of that many streams must be in memory before.
    await asyncio.gather(
        *(server.ask("POST", "/v1/completions", {**STREAM, "max_tokens": 1000}, 300.0) for _ in range(count))
    )
    before = server.memory()
    deaf = []
    for _ in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.host, server.port))
        connection.sendall(server.request("POST", "/v1/completions", STREAM))
        deaf.append(connection)
    with server.probing() as probe:
        probe.begin()
        answered = 0
        for _ in range(asked):
            response = await server.ask(
                "POST", "/v1/completions", {"prompt": "The", "max_tokens": 5, "ignore_eos": True}
            )
            answered += response.status == 200
            await asyncio.sleep(1)
        if answered < asked:
            failures.append({"why": f"{answered} of {asked} others were answered; expected all"})
        if waits and not await server.idle(STALLED_SECONDS + FILL_SECONDS):
            failures.append({"why": f"unread streams still run after {STALLED_SECONDS + FILL_SECONDS:.0f} s"})
    after = server.memory()
    for connection in deaf:
        connection.close()
    if not await server.idle(60):
        failures.append({"why": "the server is not idle 60 s after the clients have gone"})
    growth = None if before is None or after is None else round(after - before, 1)
    if growth is not None and growth > 50 + MIB_PER_READER * count:
        failures.append({"why": f"memory grew by {growth} MiB with {count} unread streams"})
    return {
        "streams": count, "waited_for_their_end": waits, "memory_growth_mib": growth,
        "probe_p99_s": round(quantile(probe.seconds, 0.99), 4), "failures": failures,
    }  # fmt: skip


async def cancelled_streams(seed: int, count: int, server: LiveServer) -> dict[str, Any]:
    """`count` streams that are left at a random time."""
    rng = random.Random(seed)
    failures: list[dict[str, Any]] = []
    waits = [rng.choice((0.0, rng.random() * 0.05, rng.random())) for _ in range(count)]
    room = asyncio.Semaphore(40)

    async def leave(seconds: float) -> None:
        async with room:
            await server.send(server.request("POST", "/v1/completions", STREAM), seconds)

    await asyncio.gather(*map(leave, waits))
    began = time.monotonic()
    if not await server.idle(30):
        failures.append({"why": f"{await server.used_pages()} pages are used 30 s after the last client has left"})
    return {"streams": count, "free_after_s": round(time.monotonic() - began, 3), "failures": failures}


def run(seed: int, count: int, *, waits: bool = True) -> dict[str, Any]:
    """`count` half heads, a twentieth as many unread streams, half as many cancelled ones; on a server of its own."""

    async def all_three() -> dict[str, Any]:
        parts = {
            "slow_heads": await slow_heads(count, server),
            "slow_readers": await slow_readers(max(count // 20, 2), server, waits),
            "cancelled_streams": await cancelled_streams(seed, max(count // 2, 10), server),
        }
        log = [{"why": f"the log has {line[:300]}"} for line in server.complaints()]
        failures = [{"part": name, **failure} for name, part in parts.items() for failure in part.pop("failures")]
        return {**parts, "failures": failures + log}

    with live_server("--no-chat", "--max-queue", 400) as server:
        return asyncio.run(all_three())
