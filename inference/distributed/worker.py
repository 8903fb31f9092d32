"""The work of a job's ranks: what rank 0 does on all of them, and what the others do on its messages."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from ...kernels.device import check_device
from ...model.checkpoint.load import Progress
from ...model.metadata import LayerCache, RecordedDecodes, Selection, SelectionSink
from ...model.transformer import Transformer
from ..engine.check_plan import CheckPlan
from ..engine.greedy import GreedyTokens
from ..engine.limits import CacheBudget, Limits
from ..engine.model_runner import Model, ModelRunner
from ..engine.noise import DraftNoise
from ..engine.runner import Runner, make_runner
from ..engine.scheduler import Batch
from ..engine.sizing import check_fits, count_pages
from ..engine.synthetic_cache import fill_synthetic_caches
from .batch_sync import BatchDecoder, BatchEncoder, BatchUpdate
from .channel import Message, MessageKind
from .follower import Follower
from .interrupts import interrupts_deferred
from .launch import start_ranks, this_job
from .leader import Leader
from .model_source import ModelSource


def lead_or_follow() -> Leader | None:
    """Connect this process with its job: rank 0 gets the Leader, a process without a job gets None.

    On every other rank this does NOT RETURN. Such a rank works for rank 0 until rank 0 ends, and then the process exits. So
    the same script runs on all ranks, and the code after this call runs on rank 0 alone.
    """
    job = this_job()
    if isinstance(job, Follower):
        follow(job)
    return job


@contextmanager
def loading_llm(tensor_parallel_size: int | None) -> Iterator[Leader | None]:
    """Around what makes an LLM. Starts that many ranks, or if None connects as `lead_or_follow`.

    An exception in the block is the end of the other ranks.
    """
    job = lead_or_follow() if tensor_parallel_size is None else start_ranks(tensor_parallel_size)
    with nullcontext() if job is None else job.loading():
        yield job


def follow(job: Follower) -> NoReturn:
    """Do rank 0's work on this rank until rank 0 ends, then exit this process."""
    job.follow(Worker(job).handle)


class Worker:
    """A rank that follows: its shard of the model, its caches, and its part of every step."""

    def __init__(self, job: Follower) -> None:
        self._job = job
        job.before_end.append(self._close)
        self._batches = BatchDecoder()
        self._batch: Batch  # of the latest step
        self._model: Transformer
        self._runner: Runner | None = None

    def handle(self, message: Message) -> None:
        """Do what a message of rank 0 says."""
        kind, values, arrays = message
        if kind == MessageKind.LOAD:
            self._model = self._load(ModelSource.from_json(values))
            self._job.reply({})
        elif kind == MessageKind.COUNT_PAGES:
            self._job.reply({"pages": count_pages(CacheBudget(**values), self._model, self._job.size)})
        elif kind == MessageKind.START:
            limits, config, compute = Limits(**values), self._model.config, self._model.compute
            sizes = (config, compute.precision, limits, compute.device, self._job.size)
            self._runner = make_runner(self._model, *sizes)
        elif kind == MessageKind.FILL_CACHES:
            assert self._runner is not None
            fill_synthetic_caches(self._model.config, self._runner.caches, self._model.compute.backend)
        elif kind == MessageKind.DRAFT:
            assert self._runner is not None
            draft_together(
                self._runner, self._batch, DraftInputs.empty(self._batch, values["random"], self._runner.device)
            )
        else:
            assert kind == MessageKind.STEP and self._runner is not None, kind
            count = len(BatchUpdate._fields)
            update = BatchUpdate(*arrays[:count])
            self._batch = batch = self._batches.decode(
                update, values["decodes"], values["draft_tokens"], values["draft_entries"]
            )
            plan = CheckPlan(values["check"], *arrays[count:]) if "check" in values else None
            broadcast_sampled_tokens(batch, self._runner)
            self._runner.run(batch, _IgnoredSelections() if values["inspect"] else None, plan)

    def _load(self, source: ModelSource) -> Transformer:
        device = check_device(self._job.device(source.device))
        check_fits(source.config, source.precision, device, self._job.size, source.mtp)
        return source.load(device, self._job.ranks(device))

    def _close(self) -> None:
        """Free the decode graphs, which contain collectives of the group."""
        if self._runner is not None:
            self._runner.free_graphs()
        self._runner = None


class LeadingRunner:
    """Rank 0's runner: it starts each step on the other ranks, too."""

    def __init__(self, job: Leader, limits: Limits, runner: Runner) -> None:
        self._job, self._runner = job, runner
        self._check_cache = limits.check_cache
        job.before_end.append(self._close)
        job.broadcast(MessageKind.START, asdict(limits))
        self._batches = BatchEncoder()

    @property
    def supports_async_scheduling(self) -> bool:
        return self._runner.supports_async_scheduling

    @property
    def caches(self) -> list[LayerCache]:
        return self._runner.caches

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        """As `Runner.stage_tokens`; the other ranks receive the tokens in the step that needs them."""
        self._runner.stage_tokens(tokens)

    def run(self, batch: Batch, on_selection: SelectionSink | None = None) -> torch.Tensor:
        """As `Runner.run`. A step that fails once the others know of it ends the job: no rank knows how far the others got."""
        with interrupts_deferred():
            plan = self._runner.plan(batch) if self._check_cache else None
            update = self._batches.encode(batch)  # last, because from here on it counts as sent
            with self._job.together():
                header: dict[str, int | None] = {
                    "decodes": batch.decodes,
                    "draft_tokens": batch.draft_tokens,
                    "draft_entries": batch.draft_entries,
                    "inspect": on_selection is not None,
                }
                arrays: list[np.ndarray] = [*update]
                if plan is not None:
                    header["check"] = plan.step
                    arrays += plan[1:]
                self._job.broadcast(MessageKind.STEP, header, arrays)
                broadcast_sampled_tokens(batch, self._runner)
                checks = () if plan is None else (plan,)
                return self._runner.run(batch, on_selection, *checks)

    @property
    def greedy(self) -> GreedyTokens | None:
        return self._runner.greedy

    @property
    def max_draft_tokens(self) -> int:
        return self._runner.max_draft_tokens

    @property
    def drafts(self) -> torch.Tensor:
        return self._runner.drafts

    def draft(self, batch: Batch, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        """As `Runner.draft`. It ends the job if it fails, as `run` does."""
        with interrupts_deferred(), self._job.together():
            self._job.broadcast(MessageKind.DRAFT, {"random": noise.random})
            draft_together(self._runner, batch, DraftInputs(sampled, accepted, noise))

    def draft_greedily(self, batch: Batch) -> None:
        """As `draft`, with the tokens of rank 0: the other ranks' may differ."""
        self.draft(batch, *self._runner.greedy_choices(batch))

    def _close(self) -> None:
        """Free the decode graphs, which contain collectives of the group."""
        self._runner.free_graphs()
        del self._runner


def load_on_all_ranks(job: Leader | None, source: ModelSource, progress: Progress | None = None) -> Transformer:
    """Load the model: this rank's shard here, the other shards on the other ranks."""
    device = check_device(job.device(source.device) if job else source.device)
    if job and job.children and source.device == "cuda" and job.size > (count := torch.cuda.device_count()):
        raise ValueError(f"tensor_parallel_size is {job.size}; expected at most {count}, the number of GPUs")
    # Before the other ranks begin to load: an error here is the caller's, not the end of the job.
    check_fits(source.config, source.precision, device, job.size if job else 1, source.mtp)
    if job is None:
        return source.load(device, None, progress)
    job.has_model = True
    job.broadcast(MessageKind.LOAD, source.to_json())
    model = source.load(device, job.ranks(device), progress)
    job.gather_replies()
    return model


def count_pages_on_all_ranks(job: Leader | None, budget: CacheBudget, model: Transformer) -> int:
    """How many cache pages every rank has memory for."""
    if job is None:
        return count_pages(budget, model)
    job.broadcast(MessageKind.COUNT_PAGES, asdict(budget))
    with job.together():
        own = count_pages(budget, model, job.size)
    return min(own, *(reply["pages"] for reply in job.gather_replies()))


def fill_caches_on_all_ranks(job: Leader | Follower | None, runner: ModelRunner, model: Model) -> None:
    """Fill all ranks' caches with random entries, as long prompts would fill them. For benchmarks of decoding alone."""
    assert not isinstance(job, Follower) and isinstance(runner, Runner | LeadingRunner)
    assert isinstance(model, Transformer)
    if job is not None:
        job.broadcast(MessageKind.FILL_CACHES)
    fill_synthetic_caches(model.config, runner.caches, model.compute.backend)


def broadcast_sampled_tokens(batch: Batch, runner: Runner) -> None:
    """Copy rank 0's staged tokens, or its drafts, to every rank's device, if the step takes tokens from there.

    Only rank 0 samples. The ranks draft alike, but a step whose ranks had other tokens would be wrong.
    """
    if batch.sampled_rows:
        dist.broadcast(runner.sampled, 0)
    if batch.draft_counts:
        dist.broadcast(runner.drafts, 0)


class DraftInputs(NamedTuple):
    """What `Runner.draft` is given beside the batch."""

    sampled: torch.Tensor
    accepted: torch.Tensor
    noise: DraftNoise

    @classmethod
    def empty(cls, batch: Batch, random: bool, device: torch.device) -> "DraftInputs":
        """Of the sizes that the batch tells, for rank 0's to be copied to."""
        rows, requests = sum(batch.logit_counts), len(batch.sampling)
        sampled, accepted, seeds, places = (
            torch.empty(count, dtype=torch.int64, device=device) for count in (rows, requests, requests, requests)
        )
        temperatures = torch.empty(requests, dtype=torch.float64, device=device)
        return cls(sampled, accepted, DraftNoise(random, temperatures, seeds, places))


def draft_together(runner: Runner, batch: Batch, inputs: DraftInputs) -> None:
    """Draft on every rank, with what rank 0 has sampled."""
    sampled, accepted, (random, temperatures, seeds, places) = inputs
    whole = torch.cat((sampled, accepted, seeds, places, temperatures.view(torch.int64)))
    if len(whole):
        dist.broadcast(whole, 0)
    rows, count = len(sampled), len(accepted)
    accepted, seeds, places, temperatures = whole[rows:].view(4, count).unbind()
    runner.draft(batch, whole[:rows], accepted, DraftNoise(random, temperatures.view(torch.float64), seeds, places))


class _IgnoredSelections:
    """Rank 0 reports what was selected; the other ranks only take part in gathering it."""

    def __call__(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        pass

    def decodes(self, record: RecordedDecodes) -> None:
        pass
