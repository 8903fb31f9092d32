"""`deepseek-v32 bench`: how fast a checkpoint prefills and decodes on this machine, or a profile of a few steps."""

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import loading
from .files import check_place, replacing
from .options import ModelOptions, option, with_options

if TYPE_CHECKING:
    from ..llm import LLM


@with_options
def bench(
    options: ModelOptions,
    prompt_tokens: Annotated[list[int], option("Tokens of a prompt. Repeatable.", min=1)] = [128, 1024],  # noqa: B006
    batch: Annotated[list[int], option("Prompts at a time. Repeatable.", min=1)] = [1, 8],  # noqa: B006
    max_new_tokens: Annotated[
        int, option("Tokens of each answer.", "--max-new-tokens", "--max-tokens", "--new-tokens", min=2)
    ] = 32,
    repeats: Annotated[int, option("Runs of each combination; the median counts.", min=1)] = 3,
    synthetic: Annotated[
        bool,
        option(
            "Use random weights. --model gives only the configuration; default: the released model's.", "--synthetic"
        ),
    ] = False,
    layers: Annotated[int | None, option("Number of layers, only with --synthetic.", min=1)] = None,
    profile: Annotated[
        Path | None,
        option(
            "Instead of measuring, write a torch.profiler trace of one prefill and four decode steps to this .json or "
            ".json.gz file, which Perfetto and chrome://tracing open. Takes the first --prompt-tokens and --batch, runs "
            "without decode graphs, and replaces an existing file."
        ),
    ] = None,
    as_json: Annotated[bool, option("Print only the JSON line.", "--json")] = False,
) -> None:
    """Measure prefill and decode. Tokens are random, and the last line of output is JSON."""
    if profile is not None:
        if not profile.name.endswith(SUFFIXES):
            raise ValueError(f"--profile is {profile}; expected a name that ends in {' or '.join(SUFFIXES)}")
        check_place("--profile", profile)
    # A graph's launch hides the layers' ranges, so a profile needs eager steps.
    eager = {"decode_graphs": False} if profile is not None else {}
    llm = options.load(reuse_pages=False, synthetic=synthetic, layers=layers, **eager)
    name = f"synthetic, {llm.config.num_hidden_layers} layers" if synthetic else str(options.model or "demo")
    result: dict[str, Any] = {"model": name, "machine": loading.summary(llm, options.backend)}
    if profile is not None:
        write_profile(profile, llm, [random_prompt(llm, prompt_tokens[0], seed) for seed in range(batch[0])])
        print(json.dumps(result | {"profile": str(profile), "prompt_tokens": prompt_tokens[0], "batch": batch[0]}))
        return
    rows = []
    for length in prompt_tokens:
        for count in batch:
            measure(llm, length, count, max_new_tokens, seed=-1)  # warms up
            runs = [measure(llm, length, count, max_new_tokens, seed) for seed in range(repeats)]
            medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            rows.append({"prompt_tokens": length, "batch": count} | medians)
    if not as_json:
        show(rows)
    print(json.dumps(result | {"results": rows}))


def measure(llm: "LLM", length: int, count: int, new_tokens: int, seed: int) -> dict[str, float]:
    """Measure random prompts that are answered together. Decoding counts from the first token of the last prompt on."""
    from ..params import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
    prompts = [random_prompt(llm, length, seed * count + i) for i in range(count)]
    before, start = llm.stats(), time.perf_counter()
    requests = llm.requests.make(prompts, params)
    without_token = {request.id for request in requests}
    prefill_end, sampled_by_then = start, 0
    for delta in llm.driver.deltas(requests):
        if delta.completion is not None and delta.completion.error is not None:
            raise ValueError(f"a request failed: {delta.completion.error}")
        if delta.request_id in without_token:
            without_token.remove(delta.request_id)
            prefill_end, sampled_by_then = time.perf_counter(), sum(request.output_count for request in requests)
    end = time.perf_counter()
    decoded = sum(request.output_count for request in requests) - sampled_by_then
    after = llm.stats()
    return {
        "drafted_tokens": sum(after.drafted_tokens) - sum(before.drafted_tokens),
        "accepted_tokens": sum(after.accepted_tokens) - sum(before.accepted_tokens),
        "time_to_first_token": prefill_end - start,
        "prefill_tokens_per_second": length * count / (prefill_end - start),
        "decode_tokens_per_second": decoded / (end - prefill_end),
    }


def random_prompt(llm: "LLM", length: int, seed: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(llm.config.vocab_size) for _ in range(length)]


def show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for heading in ("prompt", "batch", "first tokens", "prefill tokens/s", "decode tokens/s", "drafts"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row["prompt_tokens"]),
            str(row["batch"]),
            f"{row['time_to_first_token']:.3f} s",
            f"{row['prefill_tokens_per_second']:.0f}",
            f"{row['decode_tokens_per_second']:.1f}",
            f"{row['accepted_tokens'] / row['drafted_tokens']:.0%}" if row["drafted_tokens"] else "none",
        )
    Console(file=sys.stderr).print(table)


SUFFIXES = (".json", ".json.gz")  # torch compresses the latter
DECODE_STEPS = 4


def write_profile(path: Path, llm: "LLM", prompts: list[list[int]]) -> None:
    """Answer the prompts once to warm up and once under the profiler; write the trace, in place of an existing file."""
    from torch.profiler import ProfilerActivity, profile

    from ..params import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=1 + DECODE_STEPS, ignore_eos=True)
    llm.generate(prompts, params)
    activities = [ProfilerActivity.CPU]
    if llm.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        llm.generate(prompts, params)
    with replacing(path) as draft:
        profiler.export_chrome_trace(str(draft))
