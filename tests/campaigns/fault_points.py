"""The places where campaigns/faults.py injects faults, and whom a fault at each may end."""

import os
import time
from asyncio import BaseEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deepseek_v32.inference.engine import step
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.request_state import RequestState
from deepseek_v32.inference.engine.running import runner, scoring
from deepseek_v32.inference.engine.running.decode_graph import DecodeGraphs
from deepseek_v32.inference.engine.running.inputs import DecodeInputs
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.running.selection import SelectionRecorder
from deepseek_v32.inference.engine.sampling import sampler
from deepseek_v32.inference.engine.sampling.graph_tokens import GreedySample, GreedyTokens, SamplingGraphs
from deepseek_v32.inference.engine.sampling.sampler import SampledTokens
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.inference.engine.scheduling.scheduler import Scheduler
from deepseek_v32.inference.engine.step import InFlightStep
from deepseek_v32.inference.server.service import engine_thread, streams
from deepseek_v32.inference.server.service.server_log import ServerLog
from deepseek_v32.inference.text.detokenizer import IncrementalDecoder, StopStrings
from deepseek_v32.model.checkpoint import expert_files

# Which requests a fault may end: none, one, all that record selections, the requests of its step, the scored prompt, or all.
Blast = Literal["none", "one", "inspected", "step", "job", "all"]


@dataclass(frozen=True)
class Point:
    """A function that fails, before or after its work."""

    name: str
    owner: Any  # a class or a module
    attribute: str
    blast: Blast
    # Whether a call with these arguments concerns this request; given where every call about the fault's victim raises.
    concerns: Callable[[Request, tuple[Any, ...]], bool] | None = None
    only: Callable[..., bool] = lambda *arguments: True  # which calls count
    before: bool = False  # it raises before its work only
    # graphs: only where decodes run in buckets. experts: only where they stay in files, which threads read during a step.
    where: Literal["engine", "service", "graphs", "experts"] = "engine"
    reach: int = 12  # about how many calls a trial makes, until it turns out to make fewer
    instead: Callable[[], Any] | None = (
        None  # called in place of raising; unless it returns None, its result is the call's
    )


def _among(request: Request, arguments: tuple[Any, ...]) -> bool:
    return any(row.request is request for row in arguments[1])


def _mine(request: Request, arguments: tuple[Any, ...]) -> bool:
    return arguments[0].request is request


def _puts(loop: BaseEventLoop, callback: Callable[..., object], *arguments: Any) -> bool:
    return callback is streams._put_all


POINTS = (
    Point("forward", Runner, "run", "step"),
    Point("inputs", runner, "prepare", "step"),
    Point("graph replay", DecodeGraphs, "run", "step", where="graphs"),
    Point("graph inputs", DecodeInputs, "fill", "step", where="graphs"),
    Point("graph capture", DecodeGraphs, "_step", "step", where="graphs"),
    Point("step", InFlightStep, "__init__", "none"),
    Point("read", SampledTokens, "read", "step"),
    Point("greedy tokens", GreedyTokens, "sample", "none", where="graphs"),
    Point("greedy read", GreedySample, "read", "step", where="graphs"),
    Point("sampling in a graph", SamplingGraphs, "sample", "none", where="graphs"),
    Point("stage tokens", Runner, "stage_tokens", "none", where="graphs"),
    Point("record", SelectionRecorder, "_record", "inspected"),
    Point("recorder fetch", SelectionRecorder, "_fetch", "inspected"),
    Point("recorder read", SelectionRecorder, "_read", "inspected"),
    Point("sampling", step, "sample_tokens", "none"),
    Point("random number", sampler, "noise_key", "one", lambda request, args: args[0].request is request),
    Point("penalties", sampler, "penalise", "one", _among),
    Point("push", RequestState, "_push", "one"),
    Point("push always", RequestState, "_push", "one", _mine),
    Point("completion", RequestState, "completion", "one"),
    Point("detokenizer", IncrementalDecoder, "push", "one"),
    Point("last text", IncrementalDecoder, "finish", "one"),
    Point("stop matching", StopStrings, "push", "one"),
    Point("schedule", Scheduler, "schedule", "none"),
    Point("schedule ahead", Scheduler, "schedule_ahead", "none", where="graphs"),
    Point("batch", Batch, "of", "none"),
    Point("start", Scheduler, "start", "none"),
    Point("commit", Scheduler, "commit", "none"),
    Point("remove", Scheduler, "remove", "none"),
    Point("preempt", Scheduler, "preempt_latest", "none"),
    Point("admit", Scheduler, "_admit", "none"),
    Point("grow", Scheduler, "_grow", "none"),
    Point("allocate", PagePool, "allocate", "none"),
    Point("match", PagePool, "match", "none"),
    Point("register", PagePool, "register", "none"),
    Point("release", PagePool, "release", "none"),
    Point("abort", Engine, "_end", "none"),
    Point("queue", Scheduler, "add", "one", where="service"),
    Point("stats", Engine, "stats", "none", where="service"),
    Point("observer", ServerLog, "delivers", "none", where="service"),
    Point("stream delivery", BaseEventLoop, "call_soon_threadsafe", "none", None, _puts, before=True, where="service"),
    Point("scoring", scoring, "token_logprobs", "job", where="service"),
    Point("pages for scoring", Scheduler, "take_pages", "job", where="service"),
    Point("engine thread", engine_thread.EngineThread, "turn", "all", where="service"),
    Point("expert read", os, "preadv", "step", where="experts", before=True, reach=3000),
    Point("expert bytes", expert_files, "read_into", "step", where="experts", reach=3000),
    Point("truncated file", os, "preadv", "step", where="experts", before=True, reach=3000, instead=lambda: 0),
    Point("slow read", os, "preadv", "none", where="experts", before=True, reach=3000, instead=lambda: time.sleep(0.1)),
)
