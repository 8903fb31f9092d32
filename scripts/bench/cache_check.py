"""Cost of --check-cache: prompts, prompts whose beginning is reused, and steps of decodes, with and without it in turn.

    python scripts/bench/cache_check.py --device cpu                      # the demo
    python scripts/bench/cache_check.py --precision fp8 --batches 1 16 64 # the demo on a GPU
    python scripts/bench/cache_check.py --synthetic --layers 4 --prompt 4096 --batches 1 64

Two engines share one model, each with its own caches. A sample with checks is compared with the mean of its two neighbours without,
and the median of these ratios counts. On a CPU the time is that of the thread itself, so that other programs disturb less; torch
gets one thread. Prints a table, then one line of JSON. The exit status is 1 if a check fails.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1]))  # PYTHONSAFEPATH leaves it out

from bench.engine_parts.machine import describe_machine

WARM_UP = 24  # steps of decodes before those that are timed: graphs are captured, and each page is hashed at least once


def tokens_of(rng: random.Random, llm: LLM, count: int) -> list[int]:
    return [rng.randrange(10, llm.config.vocab_size) for _ in range(count)]


def clock(llm: LLM) -> float:
    return time.thread_time() if llm.device.type == "cpu" else time.perf_counter()


def generate(llm: LLM, prompt: list[int], tokens: int = 1) -> float:
    """Seconds until the answer to one prompt is there."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    begin = clock(llm)
    [completion] = llm.generate(prompt, params)
    seconds = clock(llm) - begin
    if completion.error:
        raise SystemExit(f"bench/cache_check: {completion.error}")
    return seconds


class Decoding:
    """Sequences that decode as long as they are asked to."""

    def __init__(self, llm: LLM, prompts: list[list[int]], steps: int) -> None:
        self.llm, self.steps = llm, steps
        self.params = SamplingParams(temperature=0, max_tokens=100_000, ignore_eos=True)
        self.prompts = prompts

    def start(self) -> None:
        engine = self.llm.engine
        for prompt in self.prompts:
            engine.add_request(prompt, self.params)
        while engine.scheduler.waiting or any(request.output_count < WARM_UP for request in engine.scheduler.running):
            self.step()

    def step(self) -> None:
        for delta in self.llm.engine.step():
            if delta.finish_reason is not None:
                raise SystemExit(f"bench/cache_check: {delta.completion and delta.completion.error}")

    def sample(self) -> float:
        """Seconds a step."""
        begin = clock(self.llm)
        for _ in range(self.steps):
            self.step()
        return (clock(self.llm) - begin) / self.steps

    def stop(self) -> None:
        engine = self.llm.engine
        for request in [*engine.scheduler.running]:
            engine.abort(request.id)
        engine.step()


def compare(plain: Any, checked: Any, rounds: int) -> dict[str, float]:
    """Medians of both functions' seconds, and the cost of the second with its quartiles."""
    without, with_checks = [plain()], []
    for _ in range(rounds):
        with_checks.append(checked())
        without.append(plain())
    ratios = [2 * b / (a + c) for a, b, c in zip(without, with_checks, without[1:], strict=False)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "without_ms": 1e3 * statistics.median(without),
        "with_ms": 1e3 * statistics.median(with_checks),
        "cost": middle - 1,
        "cost_q1": low - 1,
        "cost_q3": high - 1,
    }


def measure(plain: LLM, checked: LLM, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    rng = random.Random(0)
    count, rounds = arguments.prompt, arguments.rounds
    rows: list[dict[str, Any]] = []

    def prompt_seconds(llm: LLM, shared: list[int], new: int) -> float:
        return generate(llm, shared + tokens_of(rng, llm, new))

    for llm in (plain, checked):
        prompt_seconds(llm, [], count)
    few = max(rounds // arguments.prompt_share, 3)
    row = compare(lambda: prompt_seconds(plain, [], count), lambda: prompt_seconds(checked, [], count), few)
    rows.append({"case": f"prompt of {count:,}", **row})
    shared = tokens_of(rng, plain, count)
    for llm in (plain, checked):
        prompt_seconds(llm, shared, 64)
    row = compare(lambda: prompt_seconds(plain, shared, 64), lambda: prompt_seconds(checked, shared, 64), rounds)
    rows.append({"case": f"{count:,} reused, 64 new", **row})
    for batch in arguments.batches:
        prompts = [tokens_of(rng, plain, arguments.context) for _ in range(batch)]
        both = [Decoding(llm, prompts, arguments.steps) for llm in (plain, checked)]
        for one in both:
            one.start()
        row = compare(both[0].sample, both[1].sample, rounds)
        rows.append({"case": f"decode, {batch} × {arguments.context:,}", **row})
        for one in both:
            one.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint directory (default: the demo)")
    parser.add_argument("--synthetic", action="store_true", help="random weights of the released dimensions")
    parser.add_argument("--layers", type=int, default=4, help="of a synthetic model (default: %(default)s)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is a GPU)")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"))
    parser.add_argument("--prompt", type=int, default=1024, help="tokens of a prompt (default: %(default)s)")
    parser.add_argument("--context", type=int, default=1000, help="tokens before the decodes (default: %(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    parser.add_argument("--steps", type=int, default=32, help="of a sample of decoding (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="samples with checks (default: %(default)s)")
    parser.add_argument(
        "--prompt-share", type=int, default=3, help="whole prompts take a 1/N of the rounds (default: %(default)s)"
    )
    arguments = parser.parse_args()
    options: dict[str, Any] = {"synthetic": True} if arguments.synthetic else {}
    if arguments.synthetic:
        options["config_overrides"] = {"num_hidden_layers": arguments.layers, "first_k_dense_replace": 1}
    longest = arguments.context + WARM_UP + (arguments.rounds + 2) * arguments.steps
    pages = (max(arguments.batches) * longest + 4 * arguments.prompt) // 64 + 2 * max(arguments.batches) + 8
    torch.set_num_threads(1)
    llm = LLM(
        arguments.model,
        device=arguments.device,
        precision=arguments.precision,
        page_count=pages,
        max_sequences=64,
        **options,
    )
    limits = {"page_count": pages, "max_sequences": 64, "max_model_len": llm.limits.max_model_len}
    shared = llm.model, llm.config, llm.tokenizer
    checked = LLM.from_model(
        *shared,
        precision=llm.precision,
        device=str(llm.device),
        check_cache=True,
        **limits,  # type: ignore[arg-type]
    )
    rows = measure(llm, checked, arguments)
    name = f"{arguments.layers} synthetic layers" if arguments.synthetic else str(arguments.model or "demo")
    machine = describe_machine(llm.device)
    print(f"{machine}; {name}, {llm.precision}")
    for row in rows:
        print(
            f"{row['case']:28} {row['without_ms']:10.3f} ms {row['with_ms']:10.3f} ms   {row['cost']:+7.2%} "
            f"({row['cost_q1']:+.2%} to {row['cost_q3']:+.2%})"
        )
    rows = [{name: value if isinstance(value, str) else round(value, 5) for name, value in row.items()} for row in rows]
    print(json.dumps({"machine": machine, "model": name, "precision": llm.precision, "results": rows}))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # an argument that the user can correct
        raise SystemExit(f"bench/cache_check: {error}") from None
