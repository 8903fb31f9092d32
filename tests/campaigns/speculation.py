"""Does speculative decoding change nothing but the speed? Answers with drafts against answers of plain decoding, by seed.

    cd tests; python -m campaigns.speculation --first 0 --count 20            # CPU, exact precision
    cd tests; python -m campaigns.speculation --device cuda --scale 8 --sampled 0.17 --first 0 --count 125 --seconds 600
    cd tests; python -m campaigns.speculation --device cuda --precision fp8 --deterministic --scale 8 --sampled 0.17 --count 125

A case has 1 to 4 drafts, its own limits (steps of a few tokens, few pages, few sequences), and a dozen requests: prompts that
share their beginnings, greedy and sampled with temperature, top_k, top_p, min_p and penalties, with stop tokens and
log-probabilities. Some are cancelled, requests arrive while others run, and one is preempted now and then. Each answer is
compared with the one that an engine without drafts gives to the same request: the tokens, the reason for its end, and
log-probabilities within 1e-4; of a cancelled request, the tokens that it has. --scale multiplies the requests, sequences, pages
and tokens a step of a case, for GPUs. In fp32, steps of other sizes round differently, so log-probabilities that differ by more
than 1e-5 are counted, and with --control also in the same case without drafts. With --deterministic all must have equal bits.
--lines prints a JSON line after each case, so that an interrupted run leaves what it found. Ends in a JSON line of all cases; the
exit status is 1 if anything differs.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deepseek_v32.inference.completion import TokenLogprob
from deepseek_v32.inference.config import EngineConfig
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.running.runner import make_runner
from deepseek_v32.inference.engine.sizing import resolve_limits
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.transformer import Transformer

ROUNDING, TOLERANCE = (
    1e-5,
    1e-4,
)  # of a log-probability: differences above the first are counted, above the second reported


@dataclass
class Answer:
    """The output of a request."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: str = ""


@dataclass(frozen=True)
class Asked:
    """A request of a case."""

    prompt: list[int]
    params: SamplingParams
    arrival: int  # the step before which it is added
    cancelled: int | None  # after how many tokens


def make_case(seed: int, vocab: int, scale: int = 1, sampled: float = 0.5) -> tuple[dict[str, Any], int, list[Asked]]:
    """(limits, drafts, requests) of a case. sampled: the share of requests that are not greedy."""
    rng = random.Random(seed)
    limits = {
        "max_batch_tokens": rng.choice((8, 24, 70, 256)),
        "max_sequences": rng.choice((1, 3, 8)),
        "page_count": rng.choice((6, 9, 40)),
        "reuse_pages": rng.random() < 0.8,
    }
    limits |= {name: scale * limits[name] for name in ("max_batch_tokens", "max_sequences", "page_count")}
    shared = [rng.randrange(3, vocab) for _ in range(200)]
    asked = []
    for _ in range(12 * scale):
        length, own = rng.choice((0, 3, 64, 65, 130)), rng.choice((1, 2, 9, 40))
        prompt = shared[:length] + [rng.randrange(3, vocab) for _ in range(own)]
        params = SamplingParams(temperature=0)
        if rng.random() < sampled:
            params = SamplingParams(
                temperature=rng.choice((0.3, 0.7, 1.0)),
                seed=rng.randrange(2**64),
                top_p=rng.choice((1.0, 0.9)),
                top_k=rng.choice((0, 5)),
                min_p=rng.choice((0.0, 0.05)),
            )
        if rng.random() < 0.3:
            params = replace(params, presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.1)
        stops = [rng.randrange(vocab) for _ in range(rng.choice((0, vocab // 50)))]
        params = replace(
            params, max_tokens=rng.choice((1, 2, 3, 20, 40)), logprobs=2, stop_token_ids=stops, ignore_eos=True
        )
        cancelled = rng.randrange(1, 20) if rng.random() < 0.15 else None
        asked.append(Asked(prompt, params, rng.choice((0, 0, 3, 20)), cancelled))
    return limits, rng.randint(1, 4), asked


def run(
    model: Transformer, limits: dict[str, Any], drafts: int, asked: list[Asked], disturb: random.Random | None
) -> tuple[list[Answer], Counter[str]]:
    """The answers, and what happened. disturb: also cancel and preempt."""
    config, precision, device = model.config, model.compute.precision, model.compute.device
    resolved = resolve_limits(config, precision, device, EngineConfig(max_model_len=256, **limits), drafts)
    engine = Engine(make_runner(model, config, precision, resolved, device), config, resolved)
    answers, number, step, seen = [Answer() for _ in asked], {}, 0, Counter[str]()
    waiting = sorted(range(len(asked)), key=lambda i: asked[i].arrival)
    while waiting or engine.has_work:
        while waiting and (asked[waiting[0]].arrival <= step or not engine.has_work):
            i = waiting.pop(0)
            number[engine.add_request(asked[i].prompt, asked[i].params).id] = i
        if disturb is not None and engine.scheduler.running and disturb.random() < 0.03:
            engine.drain()
            if engine.scheduler.running:
                engine.scheduler.preempt_latest()
        step += 1
        for delta in engine.step():
            i = number[delta.request_id]
            answers[i].tokens += delta.token_ids
            answers[i].logprobs += delta.logprobs
            answers[i].end = delta.finish_reason or ""
            cancelled = asked[i].cancelled
            if (
                disturb is not None
                and cancelled is not None
                and not delta.finish_reason
                and len(answers[i].tokens) >= cancelled
            ):
                engine.abort(delta.request_id)
    stats = engine.stats()
    seen.update(drafted=sum(stats.drafted_tokens), accepted=sum(stats.accepted_tokens), preempted=stats.preemptions)
    seen.update(cached=stats.cached_tokens, steps=stats.steps, tokens=stats.generated_tokens)
    return answers, seen


def difference(plain: Answer, other: Answer, tolerance: float = TOLERANCE) -> dict[str, Any] | None:
    """The first thing in which an answer differs from plain decoding's."""
    count = len(other.tokens) if other.end == "abort" else max(len(plain.tokens), len(other.tokens))
    if other.end != "abort" and plain.end != other.end:
        return {"end": other.end, "expected": plain.end}
    for place in range(count):
        one, two = plain.logprobs[place : place + 1], other.logprobs[place : place + 1]
        if plain.tokens[place : place + 1] != other.tokens[place : place + 1]:
            return {"place": place, "expected": str(one), "found": str(two)}
        if abs(one[0].logprob - two[0].logprob) > tolerance:
            return {"place": place, "logprob": two[0].logprob, "expected": one[0].logprob}
    return None


def rounding(plain: list[Answer], others: list[Answer]) -> tuple[int, int, float]:
    """(log-probabilities, how many of them differ by more than ROUNDING, the largest difference)."""
    pairs = [
        pair for one, two in zip(plain, others, strict=True) for pair in zip(one.logprobs, two.logprobs, strict=False)
    ]
    apart = [abs(one.logprob - two.logprob) for one, two in pairs]
    return len(apart), sum(each > ROUNDING for each in apart), max(apart, default=0.0)


@dataclass
class Findings:
    """The results of a campaign's cases."""

    counts: Counter[str] = field(default_factory=Counter)
    apart: dict[str, float] = field(default_factory=dict)  # by kind of run: the largest difference of log-probabilities
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add_rounding(self, name: str, plain: list[Answer], others: list[Answer]) -> None:
        """name: of the run that gave the others."""
        total, above, largest = rounding(plain, others)
        self.counts.update({f"{name}logprobs": total, f"{name}above 1e-5": above})
        self.apart[name] = max(self.apart.get(name, 0.0), largest)

    def line(self) -> str:
        largest = {f"{name}largest": value for name, value in self.apart.items()}
        return json.dumps({**self.counts, **largest, "failures": self.failures})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint with an MTP layer (default: the demo)")
    parser.add_argument("--precision", default="exact", choices=("exact", "bf16", "fp8"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--count", type=int, default=10**9, help="how many cases")
    parser.add_argument("--scale", type=int, default=1, help="of a case (default: a dozen requests)")
    parser.add_argument("--sampled", type=float, default=0.5, help="share of requests with a temperature")
    parser.add_argument("--control", action="store_true", help="also run each case without drafts")
    parser.add_argument("--deterministic", action="store_true", help="batch-invariant: all bits must be equal")
    parser.add_argument("--lines", action="store_true", help="a JSON line after each case")
    parser.add_argument("--seconds", type=float, default=60, help="begin no case after that")
    arguments = parser.parse_args()
    deterministic = arguments.deterministic
    model = load_model(
        arguments.model, arguments.precision, device=arguments.device, mtp=True, deterministic=deterministic
    )
    found, began = Findings(), time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.count):
        if time.monotonic() - began > arguments.seconds:
            break
        examine(model, seed, arguments, found)
        if arguments.lines:
            print(found.line(), flush=True)
    print(found.line())
    return 1 if found.failures else 0


def examine(model: Transformer, seed: int, arguments: argparse.Namespace, found: Findings) -> None:
    """One case."""
    limits, drafts, asked = make_case(seed, model.config.vocab_size, arguments.scale, arguments.sampled)
    tolerance = 0.0 if arguments.deterministic else TOLERANCE
    ample = {"max_batch_tokens": 256, "max_sequences": 8, "page_count": 64}
    generous = {name: value * arguments.scale for name, value in ample.items()} | {"reuse_pages": False}
    plain, _ = run(model, generous, 0, asked, None)
    answers, seen = run(model, limits, drafts, asked, random.Random(seed))
    found.counts.update({**seen, "cases": 1})
    found.add_rounding("", plain, answers)
    if arguments.control:
        control, _ = run(model, limits, 0, asked, random.Random(seed))
        found.add_rounding("control ", plain, control)
        differing = sum(difference(*pair, tolerance) is not None for pair in zip(plain, control, strict=True))
        found.counts["control differs"] += differing
    for i, (one, other) in enumerate(zip(plain, answers, strict=True)):
        kind = "greedy" if asked[i].params.greedy else "sampled"
        found.counts.update([kind, "cancelled"] if other.end == "abort" else [kind])
        if (wrong := difference(one, other, tolerance)) is not None:
            found.failures.append({"seed": seed, "request": i, "drafts": drafts, "kind": kind, **wrong})
            print(found.failures[-1], file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
