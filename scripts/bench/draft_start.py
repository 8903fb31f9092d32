"""What `auto` costs while an engine is new: decoded tokens a second from its first drafts on, over those of plain decoding.

    python scripts/bench/draft_start.py --precision fp8 --batches 1 16

Each round starts new engines around a model whose kernels have run. Each engine first decodes some answers without drafts, which
captures the CUDA graphs of plain steps. Then the engines take turns, in another order each time: natural answers to questions of
the demo's test conversations, or with --fixed answers that go on for so many tokens, whatever they say after their end. Answers
start side by side and end one by one. All work behind an answer's first token counts: captures of the graphs that drafts need,
trials of numbers of drafts, and steps with few answers left. No prompt is found in the caches: an answer whose prompt plain
decoding has left there gets no drafts. With --idle, for one answer at a time, there is a third engine, which captures the graphs
that drafts lack before each turn, as a server does while nobody asks.

For each case and number of tokens: the median and the quartiles, over the rounds, of the time that plain decoding took over that of
`auto`; and the tokens a second of both in their quickest half of the rounds. Then one line of JSON.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import count, cycle
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.drafting.policy import DraftPolicy
from deepseek_v32.inference.engine.drafting.warm_up import WarmUp
from deepseek_v32.inference.engine.limits import AUTO
from deepseek_v32.inference.llm import DEMO

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder of these packages

from bench.drafts import CELLS, open_engine, other_engine, prompts

MARKS = (300, 1000, 3000, 10000)  # decoded tokens of an engine
PLAIN = "plain"


class Withheld:
    """A DraftPolicy that makes no drafts, while another one learns what steps without them cost."""

    def __init__(self, policy: DraftPolicy) -> None:
        self.pays, self.observe = policy.pays, policy.observe

    def choose(self, sequences: int, ready: int) -> None:
        return None


class Decoding:
    """One engine's decoding of one group of answers after another."""

    def __init__(self, llm: LLM, params: SamplingParams, clock: Callable[[], float]) -> None:
        self.engine, self._params, self._clock = llm.engine, params, clock
        self.tokens, self._seconds = 0, 0.0
        self.reached: dict[int, float] = {}  # seconds of decoding until each of the MARKS

    def warm(self, groups: list[list[list[int]]]) -> None:
        """Decode these groups without drafts."""
        speculation = self.engine.scheduler.speculation
        policy = speculation.policy
        speculation.policy = policy and Withheld(policy)
        for group in groups:
            self.answer(group)
        speculation.policy = policy
        self.tokens, self._seconds, self.reached = 0, 0.0, {}

    def answer(self, group: list[list[int]]) -> None:
        """Decode the answers to these prompts side by side. Their time begins once each has a token."""
        engine = self.engine
        requests = [engine.add_request(prompt, self._params) for prompt in group]
        while not all(request.output_count for request in requests):
            engine.step()
        ready, began = sum(request.output_count for request in requests), self._clock()
        while engine.has_work:
            for delta in engine.step():
                if delta.completion is not None and delta.completion.error is not None:
                    raise RuntimeError(delta.completion.error)
            taken = self._seconds + self._clock() - began
            done = self.tokens + sum(request.output_count for request in requests) - ready
            for mark in MARKS:
                if done >= mark:
                    self.reached.setdefault(mark, taken)
        self.tokens, self._seconds = done, taken


def measure(
    llm: LLM, asked: list[list[int]], arguments: argparse.Namespace, batch: int, fixed: int | None
) -> dict[str, Any]:
    groups = [asked[i : i + batch] for i in range(0, len(asked) - batch + 1, batch)]
    params = SamplingParams(temperature=0, max_tokens=fixed or 400, ignore_eos=fixed is not None)
    clock: Callable[[], float] = time.process_time if arguments.clock == "cpu" else time.perf_counter
    kinds = {PLAIN: 0, "auto": AUTO} | ({"idle": AUTO} if arguments.idle and batch == 1 else {})
    seconds: dict[str, list[dict[int, float]]] = {kind: [] for kind in kinds}
    engines = []  # so that none is freed while another works
    name = f"B={batch} {'natural' if fixed is None else f'fixed {fixed}'}"
    end = time.monotonic() + arguments.seconds
    for number in range(arguments.rounds):
        if number and time.monotonic() > end:
            break
        decodings = {}
        for kind, drafts in kinds.items():
            engine = other_engine(llm, drafts, arguments, max(arguments.batches), reuse_pages=False)
            engines.append(engine)
            decodings[kind] = Decoding(engine, params, clock)
            decodings[kind].warm(groups[:2])
        order, warm_up = list(kinds), WarmUp(decodings[list(kinds)[-1]].engine)
        for turn, group in zip(count(number), cycle(groups), strict=False):
            if all(decoding.tokens >= arguments.tokens for decoding in decodings.values()):
                break
            for kind in order if turn % 2 else reversed(order):
                while kind == "idle" and warm_up.is_due:
                    warm_up.step()
                decodings[kind].answer(group)
        for kind, decoding in decodings.items():
            seconds[kind].append(decoding.reached)
            stats = decoding.engine.stats()
            print(f"{name} {kind}: { {mark: round(1000 * each, 1) for mark, each in decoding.reached.items()} } ms, "
                  f"drafted {stats.drafted_tokens} right {stats.accepted_tokens}", file=sys.stderr, flush=True)  # fmt: skip
    return {kind: compare(f"{name} {kind}", seconds[PLAIN], seconds[kind]) for kind in kinds if kind != PLAIN}


def compare(name: str, plain: list[dict[int, float]], other: list[dict[int, float]]) -> dict[str, Any]:
    """By mark, what the rounds' seconds say. Prints them."""
    found = {}
    for mark in sorted(set.intersection(*(set(each) for each in plain + other))):
        ratios = [one[mark] / two[mark] for one, two in zip(plain, other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
        rates = [round(mark / quickest_half([each[mark] for each in kind])) for kind in (plain, other)]
        print(f"{name}: first {mark} tokens {middle:.3f} ({low:.3f} to {high:.3f}) x plain in {len(ratios)} rounds, "
              f"quickest half {rates[1]} and plain {rates[0]} tokens/s", flush=True)  # fmt: skip
        found[str(mark)] = {"each": [round(ratio, 3) for ratio in ratios], "rate": rates[1], "plain_rate": rates[0]}
    return found


def quickest_half(seconds: list[float]) -> float:
    """Their mean."""
    return statistics.mean(sorted(seconds)[: -(-len(seconds) // 2)])


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
    parser.add_argument("--rounds", type=int, default=9, help="at most (default: %(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="of a case, after which no further round begins (default: %(default)s)",
    )
    parser.add_argument(
        "--clock", default="wall", choices=("wall", "cpu"), help="cpu: seconds of the processor, on a busy machine"
    )
    parser.add_argument("--idle", action="store_true", help="also an engine that is idle between answers")
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
            results[f"{batch} {fixed or 'natural'}"] = measure(llm, asked, arguments, batch, fixed)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
