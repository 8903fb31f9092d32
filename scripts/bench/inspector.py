"""Cost of the inspector during an answer: decoding with and without recording what DSA selects.

Usage: python scripts/bench/inspector.py [--model DIRECTORY] [--device cpu] [--context 1024 4096 16384] [--batch 1 8]
Prints a table and one JSON line at the end. Rounds with and without recording alternate; each recorded round is compared with the
mean of its two neighbours, and the median of these ratios counts. The recording is that of the chat, scores included. Without
--speculative-tokens there are no drafts, because `auto` changes their number from round to round.
"""

import argparse
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.recording import Recording


def rate(llm: LLM, prompt: list[int], tokens: int, inspect: bool) -> float:
    """Tokens per second of one answer, after its first token."""
    config = llm.config
    recording = Recording(prompt, config.num_hidden_layers, config.index_topk) if inspect else None
    times = []
    for delta in llm.stream(prompt, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), inspect):
        if recording is not None and delta.selection is not None:
            recording.add(delta.token_ids[0], delta.selection)
        times.append(time.perf_counter())
    assert recording is None or recording.count == tokens
    return (tokens - 1) / (times[-1] - times[0])


def batch_rate(llm: LLM, prompts: list[list[int]], tokens: int, inspect: bool) -> float:
    """Tokens per second of several answers at once, from when all have their first token to the finished completions."""
    began = time.perf_counter()
    answers = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), inspect)
    taken = time.perf_counter() - began
    first = 0.0
    for answer in answers:
        assert len(answer.token_ids) == tokens and (answer.recording is not None) == inspect
        first = max(first, answer.timings.time_to_first_token or 0)
    return len(prompts) * (tokens - 1) / (taken - first)


def measure(llm: LLM, context: int, batch: int, tokens: int, rounds: int) -> dict[str, float]:
    """Median rates without and with recording, and the fraction of speed that recording costs, with its quartiles."""
    prompts = [[random.randrange(10, llm.config.vocab_size) for _ in range(context)] for _ in range(batch)]

    def once(inspect: bool) -> float:
        return rate(llm, prompts[0], tokens, inspect) if batch == 1 else batch_rate(llm, prompts, tokens, inspect)

    closed, opened = [], []
    for _ in range(rounds + 1):  # the first round of each warms up and prefills the prompts into the cache
        closed.append(once(False))
        opened.append(once(True))
    closed.append(once(False))
    ratios = [2 * rate / (before + after) for rate, before, after in zip(opened, closed, closed[1:], strict=False)][1:]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if rounds > 1 else ratios * 3
    return {
        "context": context,
        "batch": batch,
        "closed": statistics.median(closed[1:]),
        "open": statistics.median(opened[1:]),
        "cost": 1 - middle,
        "cost_q1": 1 - high,
        "cost_q3": 1 - low,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; the demo without it")
    parser.add_argument("--device", default=None, help="cpu or cuda; cuda where there is one")
    parser.add_argument("--precision", default=None, choices=("exact", "bf16", "fp8"))
    parser.add_argument("--context", type=int, nargs="+", default=[1024, 4096, 16384], help="tokens of the prompt")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="answers at once")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--rounds", type=int, default=9, help="of both, in turn; the median counts")
    parser.add_argument("--speculative-tokens", type=int, default=0, help="drafts a step")
    arguments = parser.parse_args()

    drafts = arguments.speculative_tokens
    llm = LLM(arguments.model, device=arguments.device, precision=arguments.precision, speculative_tokens=drafts)
    where = f"{os.cpu_count()} cores, {platform.machine()}, {torch.get_num_threads()} threads"
    if llm.device.type == "cuda":
        where = torch.cuda.get_device_name(llm.device)
    machine = f"{where}, torch {torch.__version__}"
    rows = [
        measure(llm, context, batch, arguments.tokens, arguments.rounds)
        for context in arguments.context
        for batch in arguments.batch
    ]

    console = Console()
    console.print(
        f"{machine}; {arguments.model or 'demo'}, {llm.precision}, index_topk {llm.config.index_topk}, {drafts} drafts"
    )
    table = Table("context", "batch", "closed", "open", "cost", "middle half", title="tokens a second")
    for row in rows:
        table.add_row(
            f"{row['context']:,}",
            f"{row['batch']}",
            f"{row['closed']:.1f}",
            f"{row['open']:.1f}",
            f"{row['cost']:.1%}",
            f"{row['cost_q1']:.1%} to {row['cost_q3']:.1%}",
        )
    console.print(table)
    results: list[dict[str, Any]] = [{name: round(value, 4) for name, value in row.items()} for row in rows]
    settings = {"model": str(arguments.model or "demo"), "drafts": drafts}
    print(json.dumps({"machine": machine, **settings, "results": results}))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # an argument that the user can correct
        raise SystemExit(f"bench/inspector: {error}") from None
