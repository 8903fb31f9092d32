"""What `auto` costs while an engine is new: decoded tokens a second from its first step on, over those of plain decoding.

    python scripts/measure_draft_start.py --precision fp8 --batches 1 16

Each measurement starts a new engine around a model whose kernels have run, and gives it natural answers of the demo's test
conversations, or with --fixed answers that go on for so many tokens, whatever they say after their end. Answers start side by
side and end one by one. Engines with and without drafts take turns. All work behind an answer's first token counts: captures of
CUDA graphs, trials of numbers of drafts, and steps with few answers left. No prompt is found in the caches: an answer whose prompt
plain decoding has left there gets no drafts. One line a measurement on standard error, then a table of medians, then one line of
JSON.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from measure_drafts import CELLS, open_engine, other_engine, prompts  # type: ignore[import-not-found]

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.limits import AUTO
from deepseek_v32.inference.llm import DEMO

MARKS = (300, 1000, 3000, 10000)  # decoded tokens of an engine


def first_tokens(
    llm: LLM, groups: list[list[list[int]]], params: SamplingParams, most: int, clock: Callable[[], float]
) -> dict[int, float]:
    """Seconds of decoding until each of the MARKS up to `most`."""
    engine, done, taken, found = llm.engine, 0, 0.0, dict[int, float]()
    for group in cycle(groups):
        requests = [engine.add_request(prompt, params) for prompt in group]
        while not all(request.output_count for request in requests):
            engine.step()
        count, began = len(requests), clock()
        ready = sum(request.output_count for request in requests)
        while engine.has_work:
            for delta in engine.step():
                if delta.completion is not None and delta.completion.error is not None:
                    raise RuntimeError(delta.completion.error)
            now = clock()
            count = done + sum(request.output_count for request in requests) - ready
            for mark in MARKS:
                if count >= mark and mark not in found:
                    found[mark] = taken + now - began
        done, taken = count, taken + now - began
        if done >= most:
            return found
    raise AssertionError("cycle ends for no groups alone")


def measure(
    llm: LLM, asked: list[list[int]], arguments: argparse.Namespace, batch: int, fixed: int | None
) -> dict[str, Any]:
    groups = [asked[i : i + batch] for i in range(0, len(asked) - batch + 1, batch)]
    params = SamplingParams(temperature=0, max_tokens=fixed or 400, ignore_eos=fixed is not None)
    clock: Callable[[], float] = time.process_time if arguments.clock == "cpu" else time.perf_counter
    seconds: dict[str, list[dict[int, float]]] = {"0": [], "auto": []}
    engines = []  # so that none is freed while another works
    for number in range(arguments.rounds + 1):  # round 0 warms kernels up
        for name, drafts in (("0", 0), ("auto", AUTO)):
            engine = other_engine(llm, drafts, arguments, max(arguments.batches), reuse_pages=False)
            engines.append(engine)
            taken = first_tokens(engine, groups, params, arguments.tokens if number else MARKS[0], clock)
            stats = engine.stats()
            print(f"B={batch} fixed={fixed} {name}: "
                  f"{ {mark: round(1000 * each, 1) for mark, each in taken.items()} } ms, "
                  f"drafted {stats.drafted_tokens} right {stats.accepted_tokens}", file=sys.stderr, flush=True)  # fmt: skip
            if number:
                seconds[name].append(taken)
    found: dict[str, Any] = {}
    for mark in [mark for mark in MARKS if mark <= arguments.tokens]:
        plain, auto = ([each[mark] for each in seconds[name]] for name in ("0", "auto"))
        ratio = statistics.median(plain) / statistics.median(auto)
        each = [round(one / other, 3) for one, other in zip(plain, auto, strict=True)]
        rate = round(mark / statistics.median(plain))
        found[str(mark)] = {"times_plain": round(ratio, 3), "each": each, "plain_rate": rate}
        kind = "natural" if fixed is None else "fixed"
        print(f"B={batch} {kind}: first {mark} tokens {ratio:.3f} x plain, each {each}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="the demo's format (default: the shipped one)")
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="fp8", choices=("exact", "bf16", "fp8"))
    parser.add_argument("--cells", nargs="+", default=["1K chat", "1K two hops"], choices=CELLS, metavar="CELL")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--fixed", type=int, default=150, help="tokens of answers that do not end; 0: natural ones alone"
    )
    parser.add_argument("--tokens", type=int, default=3000, help="of each engine (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--clock", default="wall", choices=("wall", "cpu"), help="cpu: seconds of the processor, on a busy machine"
    )
    parser.add_argument("--pages", type=int, default=2048)
    arguments = parser.parse_args()
    for name, value, least in (
        ("--batches", min(arguments.batches), 1),
        ("--fixed", arguments.fixed, 0),
        ("--rounds", arguments.rounds, 1),
        ("--tokens", arguments.tokens, MARKS[0]),
    ):
        if value < least:
            parser.error(f"{name} is {value}; expected at least {least}")
    most = max(arguments.batches)
    llm = open_engine(arguments, arguments.precision, most)
    asked = prompts(llm, arguments.model, max(2, -(-most // len(arguments.cells))), arguments.cells)
    results: dict[str, Any] = {"torch": torch.__version__, "precision": arguments.precision}
    for batch in arguments.batches:
        for fixed in (None, arguments.fixed) if arguments.fixed else (None,):
            name = f"B={batch} {'natural' if fixed is None else f'fixed {fixed}'}"
            results[name] = measure(llm, asked, arguments, batch, fixed)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
