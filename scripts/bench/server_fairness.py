"""Who waits for a long prompt over HTTP, and what the server costs a prompt: `deepseek-v32 serve` on a CPU, measured by its client.

    python scripts/bench/server_fairness.py [--model DIRECTORY] [--rounds 5] [--long 16000] [--lengths 2000 6000 14000]

Each round measures, in turns: the long prompt by itself; a short question one second after a long prompt; a stream that runs
while a
long prompt arrives; and each length over HTTP and in LLM.stream with all cores, one right after the other. Prompts are random,
so that none is found in reused pages. Prints each sample and a table, and ends in one JSON
line, with the machine's load before and after.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from serving.client import Client, prompts, server

QUESTION_TOKENS = 20
# Of the long prompt's answer, whose first token counts: few enough that the MTP layer leaves its prompt out, with load and without.
ANSWER_TOKENS = 8
STREAM_TOKENS = 4000  # more than are written while a long prompt is read
# What is promised on two cores with the demo: seconds, and ratios.
BOUNDS = {"question_s": 1.5, "gap_s": 0.6, "slower_beside_question": 1.15, "slower_beside_stream": 1.15}
SERVED_BOUND = 1.05


async def follow(client: Client, prompt: list[int], tokens: int, times: list[float]) -> None:
    """Append the time of each event of a stream."""
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    reader, writer = await client.open("/v1/completions", body)
    try:
        # The stream ends with IncompleteReadError.
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\ndata: {")
                times.append(time.perf_counter())
    finally:
        writer.close()
    assert times, "the server has not answered"


class Measurement:
    """The measurements of one server. Every sample is kept under its name."""

    def __init__(self, client: Client, llm: LLM, long: int) -> None:
        self.samples: dict[str, list[float]] = defaultdict(list)
        self._client, self._llm, self._long = client, llm, long

    async def question(self) -> None:
        """A question one second after a long prompt, which is compared with the ones before and after it, without load."""
        before = await self._first_token(self._long)
        reading = asyncio.create_task(self._first_token(self._long))
        await asyncio.sleep(1)
        assert not reading.done(), f"--long is {self._long}; expected a prompt that this machine reads for longer"
        start = time.perf_counter()
        times: list[float] = []
        await follow(self._client, self._prompt(QUESTION_TOKENS), QUESTION_TOKENS, times)
        loaded = await reading
        single = (before + await self._first_token(self._long)) / 2
        self._add(long_alone_s=single, question_s=times[0] - start, question_end_s=times[-1] - start)
        self._add(slower_beside_question=loaded / single)

    async def stream(self) -> None:
        """A stream that runs while a long prompt is read."""
        before = await self._first_token(self._long)
        times: list[float] = []
        writing = asyncio.create_task(follow(self._client, self._prompt(QUESTION_TOKENS), STREAM_TOKENS, times))
        await asyncio.sleep(1)
        start = time.perf_counter()
        loaded = await self._first_token(self._long)
        assert not writing.done(), (
            f"the stream has ended; expected more than {len(times)} tokens while a prompt is read"
        )
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        gaps = [after - before for before, after in itertools.pairwise(each for each in times if each >= start)]
        single = (before + await self._first_token(self._long)) / 2
        self._add(gap_s=max(gaps), gap_p50_s=statistics.median(gaps), slower_beside_stream=loaded / single)

    def served(self, length: int) -> None:
        """The same length over HTTP, between two calls of LLM.stream."""
        before, over_http = self._generate(length), asyncio.run(self._first_token(length))
        self._add(**{f"served_{length}_s": over_http})
        self._add(**{f"served_{length}": 2 * over_http / (before + self._generate(length))})

    async def _first_token(self, length: int) -> float:
        start = time.perf_counter()
        times: list[float] = []
        await follow(self._client, self._prompt(length), ANSWER_TOKENS, times)
        return times[0] - start

    def _generate(self, length: int) -> float:
        prompt, start = self._prompt(length), time.perf_counter()
        stream = self._llm.stream(prompt, SamplingParams(max_tokens=ANSWER_TOKENS, ignore_eos=True))
        next(stream)
        seconds = time.perf_counter() - start
        for _ in stream:
            pass
        return seconds

    def _prompt(self, length: int) -> list[int]:
        [prompt] = prompts(1, self._llm.config.vocab_size, length)
        return prompt

    def _add(self, **values: float) -> None:
        for name, value in values.items():
            self.samples[name].append(value)
            print(f"{name} {value:.3f}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo")
    parser.add_argument("--rounds", type=int, default=5, help="of all measurements, in turns; the median counts")
    parser.add_argument("--long", type=int, default=16000, help="tokens of the prompt that others meet")
    parser.add_argument("--lengths", type=int, nargs="*", default=[2000, 6000, 14000], help="compared with LLM.stream")
    arguments = parser.parse_args()

    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)
    context = max(arguments.long, *arguments.lengths, 0) + STREAM_TOKENS
    llm = LLM(arguments.model, device="cpu", max_model_len=context)
    machine = f"{cores} cores, {platform.machine()}, torch {torch.__version__}"
    results: dict[str, Any] = {"machine": machine, "model": str(arguments.model or "demo"), "load": os.getloadavg()[0]}
    with server(arguments.model, None, "--max-model-len", str(context)) as client:
        measurement = Measurement(client, llm, arguments.long)
        for length in sorted(arguments.lengths)[:1]:
            measurement.served(length)
        measurement.samples.clear()  # that was a warm-up
        for _ in range(arguments.rounds):
            asyncio.run(measurement.question())
            asyncio.run(measurement.stream())
            for length in arguments.lengths:
                measurement.served(length)
    results["load_after"] = os.getloadavg()[0]
    bounds = {**BOUNDS, **{f"served_{length}": SERVED_BOUND for length in arguments.lengths}}
    table = Table("", "median", "least", "most", "bound", title=f"{machine}; load {results['load']:.1f}")
    for name, values in measurement.samples.items():
        results[name] = round(statistics.median(values), 3)
        results[f"{name}_all"] = [round(value, 3) for value in values]
        bound = f"{bounds[name]:.2f}" if name in bounds else ""
        table.add_row(name, f"{results[name]:.3f}", f"{min(values):.3f}", f"{max(values):.3f}", bound)
    Console().print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    try:
        main()
    # Errors that the user can correct.
    except ValueError as error:
        raise SystemExit(f"bench/server_fairness: {error}") from None
