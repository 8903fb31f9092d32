"""Campaigns: SIGTERM under load, and kill −9 of a rank. Every request ends as declared, and nothing is left."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from support.job import free_port

from .live_server import COMMAND, LiveServer, live_server

DRAIN = 2
# For the clients to take the ends of their answers, and for the process to end.
END_SECONDS = DRAIN + 20.0
RANK_SECONDS = 15.0
LONG = {"max_tokens": 20_000, "ignore_eos": True, "temperature": 0}
CHAT = {**LONG, "messages": [{"role": "user", "content": "Hi"}]}
TEXT = {**LONG, "prompt": "The"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("/v1/completions", TEXT),
    "text stream": ("/v1/completions", {**TEXT, "stream": True}),
    "texts": ("/v1/completions", {**TEXT, "n": 4}),
    "texts stream": ("/v1/completions", {**TEXT, "n": 4, "stream": True}),
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "scores": ("/v1/completions", {"prompt": [5] * 20_000, "max_tokens": 0, "echo": True, "logprobs": 1}),
    "short": ("/v1/completions", {**TEXT, "max_tokens": 3}),
}


async def sigterm(seed: int, server: LiveServer, of: Sequence[str] = tuple(KINDS)) -> list[dict[str, Any]]:
    """Failures of one server that is stopped while requests of these kinds are open."""
    rng = random.Random(seed)
    kinds = [rng.choice(of) for _ in range(24)]
    asked = [asyncio.create_task(server.ask("POST", *KINDS[kind])) for kind in kinds]
    deaf, half = (
        socket.create_connection((server.host, server.port)),
        socket.create_connection((server.host, server.port)),
    )
    deaf.sendall(server.request("POST", *KINDS["texts stream"]))
    half.sendall(b"GET /health HTTP/1.1\r\n")
    await asyncio.sleep(rng.random() * 2)
    assert server.process is not None
    began = time.monotonic()
    server.process.terminate()
    failures = []
    for kind, response in zip(kinds, await asyncio.gather(*asked), strict=True):
        wrong = _wrong_end(kind, response.status, response.headers, response.body)
        if wrong is not None:
            failures.append({"kind": kind, "why": wrong})
    try:
        await asyncio.to_thread(server.process.wait, END_SECONDS)
    except subprocess.TimeoutExpired:
        failures.append({"why": f"the process still runs {time.monotonic() - began:.0f} s after SIGTERM"})
    if server.process.returncode:
        failures.append({"why": f"the process has ended with status {server.process.returncode}; expected 0"})
    for connection in (deaf, half):
        connection.close()
    return failures + [{"why": f"the log has {line[:300]}"} for line in server.complaints()]


def _wrong_end(kind: str, status: int | None, headers: dict[str, str], body: bytes) -> str | None:
    if status == 200 and "stream" not in kind:
        return None if body.endswith(b"}") else "half an answer"
    if status == 200:
        events = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line]
        if not events or events.pop() != b"[DONE]":
            return f"a stream that ends in {body[-100:]!r}; expected [DONE]"
        # Those that could finish have; the others have an error as their last event.
        last = json.loads(events[-1])
        ended = "error" in last or last["choices"][0]["finish_reason"] == "length"
        return None if ended else f"a stream whose last event is {events[-1][:100]!r}"
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, LookupError, TypeError):
        return f"status {status} with {body[:100]!r}; expected an error in OpenAI's shape"
    if status != 503 or code not in ("stopped", "busy") or not headers.get("retry-after", "").isdigit():
        return f"status {status}, code {code}"
    return None


def kill_a_rank(victim: int, seed: int) -> list[dict[str, Any]]:
    """Failures of a job of two ranks, of which one is killed while requests run."""
    failures: list[dict[str, Any]] = []
    shared = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        ranks = [
            subprocess.Popen(
                [str(COMMAND), "serve", "--no-chat", "--port", "0", "--device", "cpu"], stdout=log, stderr=log,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, start_new_session=True,
            )
            for rank, log in enumerate(logs)
        ]  # fmt: skip
        try:
            server = LiveServer("127.0.0.1", 0, None, ranks[0], logs[0])
            while not (found := re.search(r"running on http://127\.0\.0\.1:(\d+)", server.log())):
                if any(process.poll() is not None for process in ranks):
                    return [{"why": f"a rank ended before it served: {server.log()[-500:]}"}]
                time.sleep(0.1)
            server.port = int(found[1])
            asyncio.run(_kill_under_load(server, ranks[victim], random.Random(seed).random()))
            other = ranks[1 - victim]
            began = time.monotonic()
            try:
                code = other.wait(RANK_SECONDS)
                if code == 0:
                    failures.append({"why": "the other rank ended with status 0; expected an error"})
            except subprocess.TimeoutExpired:
                failures.append({"why": f"the other rank still runs {time.monotonic() - began:.0f} s after the kill"})
            logs[1 - victim].seek(0)
            log = logs[1 - victim].read().decode("utf-8", "replace")
            lines = [line for line in log.splitlines() if "has died" in line or line.startswith("deepseek-v32:")]
            if len(lines) != 1 or "Traceback" in log:
                failures.append({"why": f"the other rank's log: {log[-800:]!r}; expected one line of the error"})
            with contextlib.suppress(OSError):
                socket.create_connection((server.host, server.port), timeout=1).close()
                failures.append({"why": "a process still listens on the server's port"})
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                    if process.poll() is None:
                        process.wait()
    return [{"victim": victim, **failure} for failure in failures]


async def _kill_under_load(server: LiveServer, victim: subprocess.Popen[bytes], seconds: float) -> None:
    asked = [asyncio.create_task(server.ask("POST", *KINDS[kind], 30.0)) for kind in ("text stream", "chat", "text")]
    await asyncio.sleep(0.5 + seconds)
    victim.kill()
    victim.wait()
    await asyncio.gather(*asked)


def run(seed: int, count: int) -> dict[str, Any]:
    """`count` servers that are stopped under load, and `count` jobs of two ranks of which each in turn is killed."""
    failures: list[dict[str, Any]] = []
    for number in range(count):
        with live_server("--drain", DRAIN, "--no-chat", "--max-sequences", 16) as server:
            failures += asyncio.run(sigterm(seed + number, server))
    for number in range(count):
        failures += kill_a_rank(number % 2, seed + number)
    return {"stopped": count, "killed_ranks": count, "failures": failures}
