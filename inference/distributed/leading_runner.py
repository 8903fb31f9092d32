"""Rank 0's part of a job: it starts each piece of work on the other ranks and takes part itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from typing import Any

import torch

from ...kernels.device import check_device
from ...kernels.errors import ArgumentError
from ...model.checkpoint.manifest import Progress
from ...model.metadata import LayerCache
from ...model.synthetic.caches import fill_synthetic_caches
from ...model.transformer import Transformer
from ..config import CacheBudget, EngineConfig, Limits
from ..engine.request import Request
from ..engine.running.observer import Model
from ..engine.running.runner import Runner
from ..engine.running.selection import SelectionRecorder
from ..engine.scheduling.batch import Batch
from ..engine.sizing import check_fits, count_pages
from ..engine.step import Choices, ModelRunner, Step
from .batch_sync import BatchEncoder
from .channel import MessageKind
from .job import Follower, Leader, interrupts_deferred
from .model_source import ModelSource
from .rank_tokens import broadcast_sampled_tokens, share_choices


class LeadingRunner:
    """Rank 0's runner: it starts each step on the other ranks, too."""

    def __init__(self, job: Leader, limits: Limits, runner: Runner) -> None:
        self._job, self._runner = job, runner
        job.before_end.append(self._close)
        job.broadcast(MessageKind.START, asdict(limits))
        self._batches = BatchEncoder()

    @property
    def supports_async_scheduling(self) -> bool:
        return self._runner.supports_async_scheduling

    def is_quick(self, batch: Batch) -> bool:
        """Like `Runner.is_quick`, of this rank. The others' graphs are captured in the same steps."""
        return self._runner.is_quick(batch)

    @property
    def caches(self) -> list[LayerCache]:
        return self._runner.caches

    def run(self, batch: Batch) -> Step:
        """Like `Runner.run`. A step that fails once the others know of it ends the job: no rank knows how far the others got."""
        with interrupts_deferred():
            recorder = SelectionRecorder(batch) if batch.is_inspected else None
            plans = self._runner.plan(batch)
            update, policies = self._batches.encode(batch)  # last, because from here on it counts as sent
            with self._job.together():
                header: dict[str, Any] = {
                    "policies": policies,
                    "decodes": batch.decodes,
                    "draft_tokens": batch.draft_tokens,
                    "draft_entries": batch.draft_entries,
                    "takes_logits": batch.take_logits is not None,
                    "inspect": recorder is not None,
                    "plans": [len(plan) for plan in plans],  # arrays of each observer, after the batch's
                }
                self._job.broadcast(MessageKind.STEP, header, [*update, *chain.from_iterable(plans)])
                broadcast_sampled_tokens(batch, self._runner)
                return self._runner.run(batch, recorder, plans, self._share)

    def errors(self, requests: Sequence[Request]) -> dict[int, str]:
        return self._runner.errors(requests)

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        self._runner.stage_tokens(tokens)

    @property
    def max_draft_tokens(self) -> int:
        return self._runner.max_draft_tokens

    @property
    def drafts(self) -> torch.Tensor:
        return self._runner.drafts

    @contextmanager
    def _share(self, choices: Choices) -> Iterator[Choices]:
        """Draft on all ranks with rank 0's tokens: the others' may differ. If it fails, the job ends, as in `run`."""
        with interrupts_deferred(), self._job.together():
            self._job.broadcast(MessageKind.DRAFT, {"random": choices.noise.random})
            yield share_choices(choices)

    def _close(self) -> None:
        """Free the decode graphs, which contain collectives of the group."""
        self._runner.free_graphs()
        del self._runner


def load_on_all_ranks(
    job: Leader | None, source: ModelSource, chosen: EngineConfig, progress: Progress | None = None
) -> Transformer:
    """Load the model: this rank's shard here, the other shards on the other ranks."""
    device = check_device(job.device(source.device) if job else source.device)
    if job and job.children and source.device == "cuda" and job.size > (count := torch.cuda.device_count()):
        raise ArgumentError("tensor_parallel_size", job.size, f"at most {count}, the number of GPUs")
    # Before the other ranks begin to load: an error here is the caller's, not the end of the job.
    ranks, synthetic = job.size if job else 1, source.directory is None
    more = (source.mtp, synthetic, source.offload, source.directory, source.divides_sequences)
    check_fits(source.config, source.precision, device, ranks, *more)
    if job is None:
        return source.load(device, None, progress)
    source = source.with_whole_attention(device, ranks, chosen)
    job.has_model = True
    job.broadcast(MessageKind.LOAD, source.to_json())
    model = source.load(device, job.ranks(device), progress)
    job.gather_replies()
    return model


def count_pages_on_all_ranks(job: Leader | None, budget: CacheBudget, model: Transformer) -> int:
    """Return the number of cache pages that every rank has memory for."""
    if job is None:
        return count_pages(budget, model)
    job.broadcast(MessageKind.COUNT_PAGES, asdict(budget))
    with job.together():
        own = count_pages(budget, model, job.size)
    return min(own, *(reply["pages"] for reply in job.gather_replies()))


def fill_caches_on_all_ranks(job: Leader | Follower | None, runner: ModelRunner, model: Model) -> None:
    """Fill all ranks' caches with random entries, as long prompts would fill them. Only for benchmarks of decoding."""
    assert not isinstance(job, Follower) and isinstance(runner, Runner | LeadingRunner)
    assert isinstance(model, Transformer)
    if job is not None:
        job.broadcast(MessageKind.FILL_CACHES)
    fill_synthetic_caches(model.config, runner.caches, model.compute.backend)
