"""How long running answers pause while a long prompt is read: a Service on a GPU (or a CPU), measured at its engine.

    python scripts/bench/stream_gaps.py [--device cuda] [--precision fp8] [--long 32000] [--streams 1 8 32] [--rounds 3]

Each round starts a service of its own over the loaded model and some streams, and hands it the long prompt once they write. The
first round with a number of streams is cold: the graphs of that many rows and such contexts are captured while they write. A gap
is the time from one delta of a stream to its next one, as the engine's thread sees it, and as a reader in an event loop sees it.
Prompts are random, so that none is found in reused pages. Prints each round and a table, and ends in one JSON line.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import statistics
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.engine.scheduling.pace import DEVICE_TIMES, StepTimes
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.inference.server.service.streams import AsyncStream

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from serving.client import prompts

STREAM_PROMPT = 200
QUIET_SECONDS = 1.0  # in which only streams run, after their first tokens
# What is promised for the demo on one H200: two decode steps, and this many seconds.
STEPS, SECONDS = 2, 0.030


class Gaps:
    """An observer of a service: the seconds from token to token, and when they came."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def delivers(self, delta: Delta, seconds: float, since_token: float | None) -> None:
        if since_token is not None and delta.token_ids:
            self.seen.append((time.monotonic(), since_token))

    def between(self, start: float, end: float) -> list[float]:
        """Those between steps, with some part in this time. Further tokens of a step were drafts and come at the same time."""
        return [seconds for when, seconds in self.seen if start < when and when - seconds < end and seconds > 0]


async def submit(service: Service, prompt: list[int], params: SamplingParams) -> AsyncStream:
    [stream] = await service.submit_many([service.requests.from_tokens(prompt, params)])
    return stream


async def read(stream: AsyncStream, times: list[float]) -> None:
    while await stream.take():
        times.append(time.monotonic())


async def measure(llm: LLM, streams: int, long: int, step_times: StepTimes | None) -> dict[str, float]:
    """Milliseconds of one round, with a new service."""
    gaps = Gaps()
    service = Service(llm, step_times=step_times)
    service.observe(gaps)
    try:
        endless = SamplingParams(max_tokens=llm.limits.max_model_len - STREAM_PROMPT, ignore_eos=True)
        times: list[list[float]] = [[] for _ in range(streams)]
        opened = [
            await submit(service, prompt, endless) for prompt in prompts(streams, llm.config.vocab_size, STREAM_PROMPT)
        ]
        readers = [asyncio.create_task(read(stream, own)) for stream, own in zip(opened, times, strict=True)]
        while not all(times):
            await asyncio.sleep(0.01)
        await asyncio.sleep(QUIET_SECONDS / 2)  # what the streams' own prompts cost is over
        [prompt] = prompts(1, llm.config.vocab_size, long)
        quiet = time.monotonic()
        await asyncio.sleep(QUIET_SECONDS)
        start = time.monotonic()
        # An answer of some tokens, so that the prompt is read as one whose answer may have drafts.
        answer = await submit(service, prompt, SamplingParams(max_tokens=16, ignore_eos=True))
        await answer.take()
        end = time.monotonic()
        await asyncio.sleep(0.1)  # until the gaps that are open have ended
        answer.close()
        for stream in opened:
            stream.close()
        for reader in readers:
            reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*readers)
    finally:
        await asyncio.to_thread(service.stop)
    read_gaps = [
        after - before for own in times for before, after in itertools.pairwise(own) if start < after and before < end
    ]
    quiet_gaps, busy_gaps = gaps.between(quiet, start), gaps.between(start, end)
    assert busy_gaps and read_gaps, (
        f"--long is {long}; expected a prompt that is read for longer than a token is written"
    )
    return {
        "decode_ms": 1000 * statistics.median(quiet_gaps),
        "gap_p50_ms": 1000 * statistics.median(busy_gaps),
        "gap_p99_ms": 1000 * sorted(busy_gaps)[int(0.99 * (len(busy_gaps) - 1))],
        "gap_max_ms": 1000 * max(busy_gaps),
        "bound_ms": 1000 * (STEPS * statistics.median(quiet_gaps) + SECONDS),
        "reader_gap_max_ms": 1000 * max(read_gaps),
        "prompt_ms": 1000 * (end - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp8")
    parser.add_argument("--long", type=int, default=32000, help="tokens of the prompt that the streams meet")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3, help="after the cold ones")
    parser.add_argument(
        "--beside-ms", type=float, help="what steps should last while answers run; default: as a service"
    )
    parser.add_argument(
        "--least-tokens", type=int, help="prompt tokens that a step takes even so; default: as a service"
    )
    parser.add_argument("--most-drafts", type=int, help="of a step with prompt tokens; default: as a service")
    arguments = parser.parse_args()
    where = {"device": arguments.device, "precision": arguments.precision}
    llm = LLM(arguments.model, max_model_len=arguments.long + 500, **where)
    gc.collect()
    gc.freeze()  # as in a server: a full collection would stop every thread for 0.1 s
    times = DEVICE_TIMES[llm.device.type]
    if arguments.beside_ms is not None:
        times = replace(times, beside_answers=arguments.beside_ms / 1000)
    if arguments.least_tokens is not None:
        times = replace(times, least_tokens=arguments.least_tokens)
    if arguments.most_drafts is not None:
        times = replace(times, most_drafts=arguments.most_drafts)
    name = torch.cuda.get_device_name() if llm.device.type == "cuda" else "CPU"
    results: dict[str, Any] = {"machine": f"{name}, torch {torch.__version__}", **where, "long": arguments.long}
    results["step_times"] = asdict(times)
    table = Table("streams", "round", title=f"{name}, {arguments.precision}, a prompt of {arguments.long} tokens")
    for streams in arguments.streams:
        rounds: list[dict[str, float]] = []
        for number in range(arguments.rounds + 1):
            values = asyncio.run(measure(llm, streams, arguments.long, times))
            if not table.columns[2:]:
                for each in values:
                    table.add_column(each)
            label = str(number or "cold")
            table.add_row(str(streams), label, *(f"{value:.1f}" for value in values.values()))
            print(streams, label, values, file=sys.stderr, flush=True)
            rounds.append(values)
        cold, *rounds = rounds
        worst = {name: max(values[name] for values in rounds) for name in cold}
        for name, found in ((f"cold_{streams}", cold), (f"streams_{streams}", worst)):
            results[name] = {each: round(value, 2) for each, value in found.items()}
        results[f"held_{streams}"] = all(values["gap_max_ms"] <= values["bound_ms"] for values in rounds)
    Console(width=160).print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    try:
        main()
    # Errors that the user can correct.
    except ValueError as error:
        raise SystemExit(f"bench/stream_gaps: {error}") from None
