"""Requests under load against the same requests on their own: do the bits of their logits agree?

A case is a group of requests on one engine whose limits are drawn at random: few tokens a step (chunks), few pages (preemption),
few sequences, reuse of prefixes, 0 to 4 drafts, one thread or two, on a GPU decode graphs or none. Prompts share their beginnings;
some requests are greedy, others are sampled with seeds, penalties and filters; some are cancelled, some arrive late, and one is
preempted now and then. Each request is then run on its own: its prompt in one step, without drafts, reuse or graphs, on an empty
engine with one thread. The whole row of logits of every token is compared by a hash, and the log-probability bit by bit.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from deepseek_v32.inference.config import EngineConfig
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.runner import Runner, make_runner
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.sizing import resolve_limits
from deepseek_v32.inference.engine.step import Step
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.model.transformer import Transformer


@dataclass(frozen=True)
class Asked:
    """A request of a case."""

    prompt: list[int]
    params: SamplingParams
    arrival: int = 0  # the step before which it is added
    cancelled: int | None = None  # after how many tokens


@dataclass
class Answer:
    """The output of a request: its tokens, their log-probabilities, and the hash of each token's row of logits."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    end: str = ""


class RowHashes:
    """Hashes the rows of logits that a runner returns, by request and position; the latest one counts."""

    def __init__(self, runner: Runner) -> None:
        self.by_request: dict[int, dict[int, str]] = {}
        self._run = runner.run
        runner.run = self.run  # type: ignore[method-assign, assignment]

    def run(self, batch: Batch) -> Step:
        step = self._run(batch)
        rows = iter(step.logits.contiguous().cpu().numpy())
        for request, start, count, wanted in zip(
            batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
        ):
            own = self.by_request.setdefault(request.id, {})
            for position in range(start + count - wanted, start + count):
                own[position] = hashlib.blake2b(next(rows).tobytes(), digest_size=8).hexdigest()
        return step

    def of(self, request: Request, count: int) -> list[str]:
        """The hashes of the rows of the first `count` tokens of its answer."""
        first = len(request.prompt) - 1
        return [self.by_request[request.id][position] for position in range(first, first + count)]


def _chunks(longest: int) -> tuple[int, ...]:
    """Sizes of a step: small ones too, but no case takes thousands of steps."""
    if longest <= 512:
        return 7, 48, 192, 700, 2048
    return (96, 192, 700, 2048) if longest <= 4096 else (192, 700, 2048, 8192)


def make_case(seed: int, vocab: int, count: int = 12, longest: int = 256) -> tuple[dict[str, Any], list[Asked]]:
    """(limits, requests) of a case; prompts of log-uniform lengths, from 2 to `longest` tokens with their answers."""
    rng = random.Random(seed)
    lengths = [max(2, round(2 * (longest / 2) ** rng.random())) for _ in range(count)]
    shared = [[rng.randrange(3, vocab) for _ in range(longest)] for _ in range(2)]
    asked = []
    for length in lengths:
        answer = rng.choice((1, 2, 5, 12))
        size = max(1, length - answer)
        common = rng.choice((0, size // 2, size - 1, 64, 128)) if size > 1 else 0
        prompt = rng.choice(shared)[: min(common, size)]
        prompt = prompt + [rng.randrange(3, vocab) for _ in range(size - len(prompt))]
        params = SamplingParams(temperature=0)
        if rng.random() < 0.5:
            params = SamplingParams(
                temperature=rng.choice((0.3, 1.0)),
                seed=rng.randrange(2**64),
                top_p=rng.choice((1.0, 0.9)),
                top_k=rng.choice((0, 5)),
                min_p=rng.choice((0.0, 0.05)),
                presence_penalty=rng.choice((0.0, 0.5)),
                repetition_penalty=rng.choice((1.0, 1.1)),
            )
        params = replace(params, max_tokens=answer, logprobs=1, ignore_eos=True)
        cancelled = rng.randrange(1, 6) if rng.random() < 0.15 else None
        asked.append(Asked(prompt, params, rng.choice((0, 0, 3, 10)), cancelled))
    pages = math.ceil((longest + 8) / 64)
    limits = {
        "max_batch_tokens": rng.choice(_chunks(longest)),
        "max_sequences": rng.choice((2, 5, count)),
        "page_count": pages + rng.choice((1, pages // 2, count * pages)),
        "reuse_pages": rng.random() < 0.7,
        "speculative_tokens": rng.choice((0, 1, 2, 3, 4)),
        "threads": rng.choice((1, 2)),
        "decode_graphs": rng.random() < 0.3,
    }
    return limits, asked


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(
    model: Transformer, limits: dict[str, Any], asked: list[Asked], disturb: random.Random | None = None
) -> tuple[list[Answer], Counter[str]]:
    """The answers, and what happened. disturb: also cancel and preempt."""
    limits = dict(limits)
    count, drafts = limits.pop("threads"), limits.pop("speculative_tokens", 0)
    config, precision, device = model.config, model.compute.precision, model.compute.device
    longest = max(len(each.prompt) + (each.params.max_tokens or 0) for each in asked)
    resolved = resolve_limits(config, precision, device, EngineConfig(max_model_len=max(longest, 2), **limits), drafts)
    runner = make_runner(model, config, precision, resolved, device)
    hashes, engine = RowHashes(runner), Engine(runner, config, resolved)
    answers = [Answer() for _ in asked]
    requests: dict[int, tuple[int, Request]] = {}
    waiting, step = sorted(range(len(asked)), key=lambda i: asked[i].arrival), 0
    with threads(count):
        while waiting or engine.has_work:
            while waiting and (asked[waiting[0]].arrival <= step or not engine.has_work):
                i = waiting.pop(0)
                request = engine.add_request(asked[i].prompt, asked[i].params)
                requests[request.id] = i, request
            if disturb is not None and engine.scheduler.running and disturb.random() < 0.05:
                engine.drain()
                if engine.scheduler.running:
                    engine.scheduler.preempt_latest()
            step += 1
            for delta in engine.step():
                i, _ = requests[delta.request_id]
                answers[i].tokens += delta.token_ids
                answers[i].logprobs += [each.logprob for each in delta.logprobs]
                answers[i].end = delta.finish_reason or ""
                limit = asked[i].cancelled
                if (
                    disturb is not None
                    and limit is not None
                    and not delta.finish_reason
                    and len(answers[i].tokens) >= limit
                ):
                    engine.abort(delta.request_id)
    for i, request in requests.values():
        answers[i].rows = hashes.of(request, len(answers[i].tokens))
    del runner.run  # which refers to the runner: its caches must go now, not when a collector finds the circle
    stats = engine.stats()
    seen = Counter(steps=stats.steps, preempted=stats.preemptions, cached=stats.cached_tokens)
    seen.update(drafted=sum(stats.drafted_tokens), accepted=sum(stats.accepted_tokens))
    seen["graphs"] = 0 if runner.graphs is None else runner.graphs.captured
    return answers, seen


def run_alone(model: Transformer, asked: Asked) -> Answer:
    """On an empty engine, the prompt in one step, on one thread, without decode graphs."""
    pages = -(-(len(asked.prompt) + (asked.params.max_tokens or 0)) // 64)
    limits = {"max_batch_tokens": 1 << 16, "max_sequences": 1, "page_count": pages, "reuse_pages": False, "threads": 1}
    (answer,), _ = run(model, limits | {"speculative_tokens": 0, "decode_graphs": False}, [asked])
    return answer


def differences(alone: Answer, other: Answer) -> Counter[str]:
    """The number of tokens in which the two differ, by kind of difference."""
    count = Counter[str]()
    if other.end == "error" or (
        other.end != "abort" and (other.end, len(other.tokens)) != (alone.end, len(alone.tokens))
    ):
        count["ends"] += 1
    kinds = (
        ("tokens", alone.tokens, other.tokens),
        ("logprobs", alone.logprobs, other.logprobs),
        ("rows", alone.rows, other.rows),
    )
    for kind, ones, others in kinds:
        count[kind] += sum(one != two for one, two in zip(ones, others, strict=False))
    return +count


def run_case(
    model: Transformer, seed: int, count: int = 12, longest: int = 256
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Run a case. Returns counts, and each request that differs. RuntimeError if a step fails."""
    limits, asked = make_case(seed, model.config.vocab_size, count, longest)
    if model.mtp is None:
        limits["speculative_tokens"] = 0
    answers, total = run(model, limits, asked, random.Random(seed))
    if any(answer.end == "error" for answer in answers):
        raise RuntimeError("a step failed, as the log says; such a case compares nothing")
    failures = []
    for i, (each, answer) in enumerate(zip(asked, answers, strict=True)):
        alone = run_alone(model, each)
        total.update(requests=1, rows=len(answer.rows), cancelled=answer.end == "abort", sampled=not each.params.greedy)
        if found := differences(alone, answer):
            failures.append({"seed": seed, "request": i, "prompt": len(each.prompt), **found})
    total["cases"] += 1
    return total, failures
