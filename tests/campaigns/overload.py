"""Campaign: twenty times as many clients as the server holds. Each is answered completely, or refused with a time to come back."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

from .live_server import LiveServer, live_server, quantile

CAPACITY = 64
CLIENTS = 20 * CAPACITY
ARGUMENTS = ("--no-chat", "--max-sequences", CAPACITY // 2, "--max-queue", CAPACITY // 2, "--max-model-len", 1024,
             "--connections-per-peer", 0)  # fmt: skip
# Much less than Retry-After, so that requests are refused.
PAUSE = 0.2


async def overload(seed: int, count: int, clients: int, server: LiveServer) -> dict[str, Any]:
    """`count` requests by `clients` clients at once; half of them stream, and some of these leave early."""
    outcomes: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    refused_after: list[float] = []
    numbers = iter(range(count))
    loop = asyncio.get_running_loop()

    async def client() -> None:
        for number in numbers:
            rng = random.Random(seed * count + number)
            stream = rng.random() < 0.5
            body = {
                "prompt": [rng.randrange(10, 300) for _ in range(rng.randrange(1, 100))],
                "max_tokens": rng.randrange(1, 40), "ignore_eos": True, "stream": stream,
            }  # fmt: skip
            began = loop.time()
            # A client that leaves closes its connection after a while, whatever has come.
            leaves = stream and rng.random() < 0.2
            response = await server.send(
                server.request("POST", "/v1/completions", body), rng.random() if leaves else 300.0
            )
            if response.status == 503:
                refused_after.append(loop.time() - began)
                wrong = _wrong_refusal(response.headers, response.body)
                outcomes["refused" if wrong is None else "wrong"] += 1
                await asyncio.sleep(PAUSE)
            elif leaves and not response.is_closed:
                outcomes["left"] += 1
                continue
            else:
                text = response.body
                good = text.endswith(b"data: [DONE]\n\n") if stream else b'"length"' in text
                wrong = None if response.status == 200 and good else f"{response.status}: {response.received[-200:]!r}"
                outcomes["answered" if wrong is None else "wrong"] += 1
            if wrong is not None:
                failures.append({"number": number, "why": wrong})

    await asyncio.gather(*(client() for _ in range(clients)))
    if not await server.idle():
        failures.append({"why": "the server is not idle 30 s after the last request"})
    failures += [{"why": f"the log has {line[:300]}"} for line in server.complaints()]
    return {
        "clients": clients, "requests": count, "outcomes": dict(outcomes),
        "refused_after_s": {name: round(quantile(refused_after, share), 3) for name, share in (("p50", 0.5), ("p99", 0.99))},
        "failures": failures,
    }  # fmt: skip


def _wrong_refusal(headers: dict[str, str], body: bytes) -> str | None:
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, TypeError, LookupError):
        return f"a refusal with the body {body[:100]!r}"
    if code not in ("busy", "connections") or not headers.get("retry-after", "").isdigit():
        return f"a refusal with code {code} and Retry-After {headers.get('retry-after')}"
    return None


def run(seed: int, count: int, *, clients: int = CLIENTS) -> dict[str, Any]:
    """`count` requests to a server of its own, which holds CAPACITY."""
    with live_server(*ARGUMENTS) as server:
        return asyncio.run(overload(seed, count, clients, server))
