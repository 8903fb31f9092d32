"""The overhead of the server compared with the engine without it, and its behaviour under too many requests.

Usage: python scripts/bench/server.py [--model DIRECTORY] [--batch 1 8 32] [--tokens 256] [--rounds 9] [--seconds 60]
Prints tables and ends in one JSON line. Server and client are two processes on this machine, which must be otherwise idle.

Overhead: rounds of LLM.generate and rounds of streams over HTTP alternate, both with the same number of threads. Each round of
streams is compared with the mean of the rounds before and after it; the result is the median of these ratios. Every event of
every stream is read.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from serving.client import MAX_MODEL_LEN, Client, prompts, server

# Much less than Retry-After, because refusals are measured.
RETRY_SECONDS = 0.1


def engine_rate(llm: LLM, batch: int, tokens: int) -> float:
    """Tokens per second of LLM.generate."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    start = time.perf_counter()
    llm.generate(prompts(batch, llm.config.vocab_size), params)
    return batch * tokens / (time.perf_counter() - start)


async def streamed_rate(client: Client, vocab_size: int, batch: int, tokens: int) -> float:
    """Tokens per second of `batch` concurrent streams, from the first request to the last [DONE]."""

    async def one(prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        status, _, rest = await client.ask("/v1/completions", body)
        assert status == 200 and rest.count(b'"finish_reason": "length"') == 1, rest[-500:]

    batch_prompts = prompts(batch, vocab_size)
    start = time.perf_counter()
    await asyncio.gather(*map(one, batch_prompts))
    return batch * tokens / (time.perf_counter() - start)


def overhead(llm: LLM, client: Client, batch: int, tokens: int, rounds: int) -> dict[str, float]:
    """Medians of both rates, and median and quartiles of the ratios. The first round of each is a warm-up."""
    single, served = [], []
    for _ in range(rounds + 1):
        single.append(engine_rate(llm, batch, tokens))
        served.append(asyncio.run(streamed_rate(client, llm.config.vocab_size, batch, tokens)))
    single.append(engine_rate(llm, batch, tokens))
    # The machine's other load varies, so that a round is compared with its neighbours in time.
    ratios = [2 * rate / (before + after) for rate, before, after in zip(served, single, single[1:], strict=False)][1:]
    return {
        f"generate_{batch}": statistics.median(single[1:]),
        f"streamed_{batch}": statistics.median(served[1:]),
        f"ratio_{batch}": statistics.median(ratios),
        f"ratio_{batch}_q1": percentile(ratios, 25),
        f"ratio_{batch}_q3": percentile(ratios, 75),
    }


async def gaps(client: Client, vocab_size: int, tokens: int) -> list[float]:
    """Seconds between the events of the only stream."""
    body = {"prompt": prompts(1, vocab_size)[0], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    reader, writer = await client.open("/v1/completions", body)
    times = []
    # The stream ends with IncompleteReadError.
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readuntil(b"\ndata: {")
            times.append(time.perf_counter())
    writer.close()
    return [after - before for before, after in itertools.pairwise(times)]


async def crowd(client: Client, vocab_size: int, clients: int, seconds: float) -> dict[str, Any]:
    """Clients that send the next request as soon as they are answered, and shortly after they are refused."""
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
            status, elapsed, _ = await client.ask("/v1/completions", body)
            statuses[status] += 1
            if status == 503:
                refusals.append(elapsed)
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
    """Seconds from a disconnection in the middle of an answer until the server counts no page as used, polling included."""
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
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="concurrent answers")
    parser.add_argument("--tokens", type=int, default=256, help="per answer")
    parser.add_argument("--rounds", type=int, default=9, help="of each kind, in turn; the median counts")
    parser.add_argument(
        "--threads",
        type=int,
        default=max(1, (os.cpu_count() or 2) - 1),
        help="of the model; default: all cores but one",
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the overload; 0 skips it")
    parser.add_argument("--cancellations", type=int, default=100)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    llm = LLM(arguments.model, device="cpu", max_model_len=MAX_MODEL_LEN)
    vocab_size = llm.config.vocab_size
    results: dict[str, Any] = {"machine": machine, "model": str(arguments.model or "demo"), "load": os.getloadavg()[0]}

    with server(arguments.model, arguments.threads) as client:
        for batch in arguments.batch:
            results |= overhead(llm, client, batch, arguments.tokens, arguments.rounds)
        seconds = asyncio.run(gaps(client, vocab_size, arguments.tokens))
        results |= {"gap_p50_ms": 1000 * percentile(seconds, 50), "gap_p99_ms": 1000 * percentile(seconds, 99)}
        seconds = asyncio.run(cancellations(client, vocab_size, arguments.cancellations))
        results |= {"cancel_p50_ms": 1000 * percentile(seconds, 50), "cancel_p99_ms": 1000 * percentile(seconds, 99)}
    if arguments.seconds:
        with server(arguments.model, arguments.threads, "--max-sequences", "8", "--max-queue", "8") as client:
            results |= asyncio.run(crowd(client, vocab_size, arguments.clients, arguments.seconds))
    results["load_after"] = os.getloadavg()[0]
    show(results, arguments)
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in results.items()}
    print(json.dumps(rounded))


def show(results: dict[str, Any], arguments: argparse.Namespace) -> None:
    console = Console()
    console.print(results["machine"])
    table = Table("batch", "LLM.generate", "streamed over HTTP", "ratio", "quartiles", title="tokens per second")
    for batch in arguments.batch:
        rates = [f"{results[f'{name}_{batch}']:.0f}" for name in ("generate", "streamed")]
        ratio = f"{results[f'ratio_{batch}']:.1%}"
        table.add_row(
            str(batch), *rates, ratio, f"{results[f'ratio_{batch}_q1']:.1%} to {results[f'ratio_{batch}_q3']:.1%}"
        )
    console.print(table)
    title = f"{arguments.clients} clients for {arguments.seconds:.0f} s; at most 16 open requests"
    table = Table("", "", title=title, show_header=False)
    names = ("gap_p50_ms", "gap_p99_ms", "cancel_p50_ms", "cancel_p99_ms", "answered", "refused", "other")
    for name in (*names, "refusal_p50_ms", "refusal_p99_ms", "pages_used_after"):
        if name in results:
            value = results[name]
            table.add_row(name.replace("_", " "), f"{value:.1f}" if isinstance(value, float) else str(value))
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    # Errors that the user can correct.
    except ValueError as error:
        raise SystemExit(f"bench/server: {error}") from None
