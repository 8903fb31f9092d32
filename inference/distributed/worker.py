"""The work of the other ranks: it carries out rank 0's messages. Also how a process becomes such a rank."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice

from ...kernels.device import check_device
from ...model.synthetic.caches import fill_synthetic_caches
from ...model.transformer import Transformer
from ..config import CacheBudget, Limits
from ..engine.running.runner import Runner, make_runner
from ..engine.running.selection import SelectionRecorder
from ..engine.sizing import check_fits, count_pages
from ..engine.step import Step
from .batch_sync import BatchDecoder, BatchUpdate
from .channel import Message, MessageKind
from .job import Follower, Leader
from .launch import start_ranks, this_job
from .model_source import ModelSource
from .rank_tokens import broadcast_sampled_tokens, empty_choices, share_choices


def lead_or_follow() -> Leader | None:
    """Connect this process with its job: the Leader on rank 0, None without a job. On other ranks it does NOT RETURN."""
    job = this_job()
    if isinstance(job, Follower):
        job.follow(Worker(job).handle)
    return job


@contextmanager
def loading_llm(tensor_parallel_size: int | None) -> Iterator[Leader | None]:
    """Wrap the making of an LLM on that many ranks, or if None as `lead_or_follow`. An exception ends the other ranks."""
    job = lead_or_follow() if tensor_parallel_size is None else start_ranks(tensor_parallel_size)
    with nullcontext() if job is None else job.loading():
        yield job


class Worker:
    """A rank that follows: its shard of the model, its caches, and its part of every step."""

    def __init__(self, job: Follower) -> None:
        self._job = job
        job.before_end.append(self._close)
        self._batches = BatchDecoder()
        self._step: Step
        self._model: Transformer
        self._runner: Runner | None = None

    def handle(self, message: Message) -> None:
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
            self._step.draft(share_choices(empty_choices(self._step.batch, values["random"], self._runner.device)))
        else:
            assert kind == MessageKind.STEP and self._runner is not None, kind
            count = len(BatchUpdate._fields)
            update = BatchUpdate(*arrays[:count])
            names = ("policies", "decodes", "draft_tokens", "draft_entries")
            batch = self._batches.decode(update, *(values[name] for name in names))
            if values["takes_logits"]:
                batch = replace(batch, take_logits=lambda logits: None)
            rest = iter(arrays[count:])
            plans = [tuple(islice(rest, length)) for length in values["plans"]]
            broadcast_sampled_tokens(batch, self._runner)
            # It keeps nothing, because only rank 0's requests ask for selections.
            recorder = SelectionRecorder(batch) if values["inspect"] else None
            self._step = self._runner.run(batch, recorder, plans)

    def _load(self, source: ModelSource) -> Transformer:
        device = check_device(self._job.device(source.device))
        more = (source.mtp, False, source.offload, None, source.divides_sequences)
        check_fits(source.config, source.precision, device, self._job.size, *more)
        return source.load(device, self._job.ranks(device))

    def _close(self) -> None:
        """Free the decode graphs, which contain collectives of the group."""
        if self._runner is not None:
            self._runner.free_graphs()
        self._runner = None
