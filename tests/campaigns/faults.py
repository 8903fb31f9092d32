"""Campaign: faults are injected into the engine and its service, one in each trial. Each ends only the requests that it concerns.

In each trial several requests run together: greedy, with penalties, random with a seed, with log-probabilities, stop strings and
recorded selections, sharing prefixes, with so few pages that some are preempted; one may be cancelled, and a prompt may be scored.
They are interleaved streams of an LLM, or come through a Service, from threads or an event loop. At one of the points of
fault_points.py a call raises, before or after its work; where the point is about one request, every such call of that request.

A trial has failed if a request does not end, one ends in an error that the fault must not reach, one gets other tokens than it
gets on its own, a page is lost, or the engine does not answer afterwards. In other precisions than exact the rest of the batch may
change a token: other tokens are only counted.
"""

import logging
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.running import runner
from deepseek_v32.inference.server.service.server_log import ServerLog
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.model.config import Precision
from support.pages import check_pool

from .fault_clients import Outcome, Work, demo_prompts, read_service, read_streams
from .fault_injection import Injection
from .fault_points import POINTS, Point

KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.05, "stop": ["\N{SNOWMAN}"]},
    {"temperature": 0.2},
    {"temperature": 0.2, "top_p": 0.9, "frequency_penalty": 0.05},
    {"temperature": 0, "logprobs": 2},
)
ERRORS = (RuntimeError, MemoryError, AssertionError, KeyError, torch.OutOfMemoryError)
TOGETHER = 6  # requests of a trial
MISSES = 50  # trials in a row that may pass a point by; an engine without pages would pass it by for ever


class Campaign:
    """Trials on one engine."""

    def __init__(self, llm: LLM, prompts: Sequence[Sequence[int]], seed: int) -> None:
        self.llm, self.rng = llm, random.Random(seed)
        self.exact, self.different = llm.precision == "exact", 0  # requests that got other tokens than on their own
        self.graphs = getattr(llm.engine.runner, "graphs", None)
        self.reach = {point.name: point.reach for point in POINTS}
        self.works = []
        for number, prompt in enumerate(prompts):
            params = SamplingParams(
                max_tokens=4 + number % 5, ignore_eos=True, seed=number, **KINDS[number % len(KINDS)]
            )
            inspect = number % 6 == 3
            [alone] = llm.generate([prompt], params, inspect=inspect)
            assert alone.error is None, alone.error
            self.works.append(Work(tuple(prompt), params, inspect, tuple(alone.token_ids)))

    def points(self) -> list[Point]:
        """The points that this engine passes."""
        present = {"graphs": self.graphs, "experts": getattr(self.llm.model, "expert_slots", None)}
        return [point for point in POINTS if present.get(point.where, True) is not None]

    def trial(self, point: Point) -> tuple[bool, list[str]]:
        """Run a trial. Returns whether the fault has struck, and complaints."""
        rng, llm = self.rng, self.llm
        runner_with_graphs: Any = llm.engine.runner
        if self.graphs is not None:
            runner_with_graphs.graphs = self.graphs if point.where == "graphs" or rng.random() < 0.6 else None
            if point.name == "graph capture":
                self.graphs._buckets.clear()
        llm.engine.pool.clear()  # so that prefixes are written and found anew
        works = rng.sample(self.works, min(TOGETHER, len(self.works)))
        outcomes = [Outcome(llm.engine.requests.from_tokens(work.prompt, work.params, work.inspect)) for work in works]
        error = SystemExit if point.name == "engine thread" else rng.choice(ERRORS)
        at = rng.randrange(1, 3) if point.concerns else int(self.reach[point.name] ** rng.random()) - 1
        after = not point.before and rng.random() < 0.5
        victim = rng.choice(
            [each.request for each in outcomes if not each.request.params.greedy] or [outcomes[0].request]
        )
        injection = Injection(point, at, after, error, llm.engine, victim)
        cancel = rng.randrange(len(works)) if rng.random() < 0.4 or point.name == "abort" else None
        in_service = point.where == "service" or rng.random() < 0.5
        score = None
        if in_service and (point.blast == "job" or rng.random() < 0.3):
            score = llm.engine.requests.from_tokens(works[0].prompt, min_new_tokens=0)
        scored, wrong = None, []
        try:
            if in_service:
                with Service(llm) as service:
                    service.observe(ServerLog(service))
                    with injection.installed():
                        scored = read_service(service, outcomes, cancel, score)
            else:
                with injection.installed():
                    read_streams(llm, outcomes, cancel)
        except Exception as error:
            wrong.append(f"a caller was given {error!r}")
        wrong += self._complaints(injection, works, outcomes, cancel)
        if scored is not None and not ("injected" in str(scored) or point.blast == "all" or point.where == "experts"):
            wrong.append(f"scoring raised {scored!r}")
        wrong += self._after(works[0])
        where = f"{point.name}, call {at}, {'after' if injection.after else 'before'}, {'service' if in_service else 'streams'}"
        if not injection.struck:
            self.reach[point.name] = max(self.reach[point.name] // 2, 1)
        return injection.struck, [f"{where}: {each}" for each in wrong]

    def _complaints(
        self, injection: Injection, works: list[Work], outcomes: list[Outcome], cancel: int | None
    ) -> list[str]:
        wrong, failed = [], set()
        for number, (work, outcome) in enumerate(zip(works, outcomes, strict=True)):
            if (complaint := outcome.complaint(work, number == cancel)) is not None:
                wrong.append(f"request {number} {complaint}")
            if outcome.differs(work):
                self.different += 1
                if self.exact:
                    wrong.append(f"request {number} got {outcome.tokens}; on its own it gets {work.tokens}")
            if outcome.ended and outcome.deltas[-1].finish_reason == "error":
                failed.add(outcome.request.id)
                if not outcome.error:
                    wrong.append(f"request {number} ended in an error without a text")
        may = {
            "none": set(),
            "job": set(),
            "one": failed if len(failed) <= 1 else set(),
            "inspected": {outcome.request.id for outcome in outcomes if outcome.request.inspect},
            "step": injection.step,
            "all": failed,
        }[injection.point.blast if injection.struck else "none"]
        if injection.point.concerns is not None:
            may = {injection.victim.id}
        if failed - may:
            errors = {outcome.error for outcome in outcomes if outcome.request.id in failed - may}
            wrong.append(f"{len(failed - may)} requests ended that should not: {errors}")
        return wrong

    def _after(self, work: Work) -> list[str]:
        """Complaints about lost pages, or about an engine that no longer answers."""
        engine, wrong = self.llm.engine, []
        for id in list(engine._states):  # left by a thread that has died
            engine.abort(id)
        try:
            engine.step()
            check_pool(engine.pool)
            if engine.pool.used:
                wrong.append(f"{engine.pool.used} pages are lost")
            [again] = self.llm.generate([work.prompt], work.params)
            if again.error is not None or (self.exact and tuple(again.token_ids) != work.tokens):
                wrong.append(
                    f"afterwards a request got {again.token_ids}, {again.error}; on its own it gets {work.tokens}"
                )
        except Exception as error:
            wrong.append(f"afterwards: {error!r}")
        return wrong


def run(
    seed: int,
    count: int,
    llm: LLM | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    seconds: float = math.inf,
    where: str | None = None,
) -> dict[str, Any]:
    """`count` faults that have struck, the points in turn. llm: by default the demo on the CPU; prompts: by default its questions.

    seconds: fewer faults, if they take longer. where: only at the points with this place. A point that no trial reaches any more
    ends the campaign, and is a failure. Returns trials, points (faults by point), unstruck (trials that ended before the fault's
    turn came), different_answers (requests that got other tokens than on their own: failures in exact precision) and failures.
    """
    llm = load() if llm is None else llm
    campaign = Campaign(llm, demo_prompts(llm) if prompts is None else prompts, seed)
    points = [point for point in campaign.points() if where in (None, point.where)]
    struck, unstruck, missed, failures = Counter[str](), 0, 0, list[str]()
    logging.disable(logging.CRITICAL)  # every fault is logged with its traceback
    began = time.monotonic()
    try:
        while (trials := struck.total()) < count and time.monotonic() - began < seconds:
            point = min(points, key=lambda each: struck[each.name])
            hit, wrong = campaign.trial(point)
            struck[point.name] += hit
            unstruck += not hit
            missed = 0 if hit else missed + 1
            failures += [f"trial {trials}, {each}" for each in wrong]
            if missed == MISSES:
                failures.append(f"trial {trials}: {missed} trials in a row have not reached {point.name!r}")
                break
    finally:
        logging.disable(logging.NOTSET)
    return {
        "seed": seed,
        "trials": struck.total(),
        "points": dict(struck),
        "unstruck": unstruck,
        "different_answers": campaign.different,
        "seconds": round(time.monotonic() - began, 1),
        "failures": failures,
    }


def load(device: str | None = "cpu", precision: Precision | None = None, **options: Any) -> LLM:
    """The demo with few pages. On a CPU its decodes run in buckets, as in the CUDA graphs of a GPU, but without graphs."""
    can_capture = vars(runner)["can_capture"]
    vars(runner)["can_capture"] = lambda model: device == "cpu" or can_capture(model)
    try:
        limits: dict[str, Any] = {"page_count": 4, "max_model_len": 256, "max_sequences": 4, "max_batch_tokens": 96}
        return LLM(device=device, precision=precision, **limits, **options)
    finally:
        vars(runner)["can_capture"] = can_capture
