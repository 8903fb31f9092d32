"""`deepseek-v32 bench`: how fast a checkpoint is read into the cache and decoded on this machine."""

import json
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import loading
from .options import ModelOptions, with_options

if TYPE_CHECKING:
    from ..llm import LLM


@with_options
def bench(
    options: ModelOptions,
    prompt_tokens: Annotated[list[int], typer.Option("--prompt-tokens", min=1, help="Prompt lengths.")] = [128, 1024],  # noqa: B006
    batch: Annotated[list[int], typer.Option("--batch", min=1, help="Prompts at a time.")] = [1, 8],  # noqa: B006
    new_tokens: Annotated[int, typer.Option("--new-tokens", min=2, help="Tokens of each answer.")] = 32,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each; the median counts.")] = 3,
    synthetic: Annotated[
        bool,
        typer.Option("--synthetic", help="Random weights; of --model the configuration alone, or the released one."),
    ] = False,
    layers: Annotated[int | None, typer.Option("--layers", min=1, help="So many layers, with --synthetic.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The JSON line alone.")] = False,
) -> None:
    """Measure prefill and decode on random tokens; ends in one JSON line."""
    llm = options.load(reuse_pages=False, synthetic=synthetic, layers=layers)
    rows = []
    for length in prompt_tokens:
        for count in batch:
            measured = [measure(llm, length, count, new_tokens, seed) for seed in range(-1, repeats)][1:]  # -1 warms up
            rows.append(
                {"prompt_tokens": length, "batch": count}
                | {key: statistics.median(run[key] for run in measured) for key in measured[0]}
            )
    if not as_json:
        show(rows)
    name = f"synthetic, {llm.config.num_hidden_layers} layers" if synthetic else str(options.model or "demo")
    print(json.dumps({"model": name, "machine": loading.summary(llm, options.backend), "results": rows}))


def measure(llm: "LLM", length: int, count: int, new_tokens: int, seed: int) -> dict[str, float]:
    """Rates of `count` random prompts of `length` tokens that are answered together."""
    from ..params import SamplingParams

    draw = random.Random(seed)
    params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
    start = time.perf_counter()
    requests = [
        llm.engine.add_request([draw.randrange(llm.config.vocab_size) for _ in range(length)], params)
        for _ in range(count)
    ]
    waiting = {request.id for request in requests}
    prefilled, before = start, 0
    while llm.engine.has_work:
        for delta in llm.engine.step():
            if delta.completion is not None and delta.completion.error is not None:
                raise ValueError(f"a request failed: {delta.completion.error}")
            if delta.request_id in waiting:
                waiting.remove(delta.request_id)
                # Early prompts decode while late ones are read: only what comes after the last is pure decode.
                prefilled, before = time.perf_counter(), sum(request.output_count for request in requests)
    end = time.perf_counter()
    decoded = sum(request.output_count for request in requests) - before
    return {
        "time_to_first_token": prefilled - start,
        "prefill_tokens_per_second": length * count / (prefilled - start),
        "decode_tokens_per_second": decoded / (end - prefilled),
    }


def show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for heading in ("prompt", "batch", "all first tokens", "prefill tokens/s", "decode tokens/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row["prompt_tokens"]),
            str(row["batch"]),
            f"{row['time_to_first_token']:.3f} s",
            f"{row['prefill_tokens_per_second']:.0f}",
            f"{row['decode_tokens_per_second']:.1f}",
        )
    Console(file=sys.stderr).print(table)
