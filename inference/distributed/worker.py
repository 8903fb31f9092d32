"""One rank's model and caches: what rank 0 makes for itself, and the others on its word."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ...kernels.device import check_device
from ...kernels.registry import check_backend
from ...model.checkpoint.config_json import config_json, parse_config, read_config
from ...model.checkpoint.load import Progress, load_checkpoint
from ...model.config import ModelConfig, Precision
from ...model.metadata import LayerCache, Selection, SelectionCallback
from ...model.parallel.collectives import Ranks
from ...model.parallel.plan import Plan
from ...model.parallel.shard import build_model
from ...model.synthetic.weights import fill_synthetic
from ...model.transformer import Transformer
from ..engine.cache import SCRATCH_PAGES, allocate
from ..engine.limits import Limits, Room
from ..engine.runner import Model, ModelRunner, Runner, make_runner
from ..engine.scheduler import Batch
from ..engine.sizing import check_fits, measure_step, pages_in_memory
from ..engine.synthetic_cache import fill_synthetic_caches
from .batch_sync import BatchDecoder, BatchEncoder
from .job import Follower, Leader
from .launch import device_of, world_size


@dataclass(frozen=True)
class ModelSource:
    """What to load, and how to run it."""

    config: ModelConfig
    directory: Path | None  # of the weights; None: synthetic ones
    precision: Precision
    backend: str
    device: str  # "cuda" is each rank's own GPU
    seed: int = 0  # of synthetic weights

    @classmethod
    def resolve(
        cls,
        model: str | Path | Mapping[str, Any],
        *,
        device: str | None,
        precision: Precision | None,
        backend: str,
        config_overrides: Mapping[str, Any] | None = None,
        synthetic: bool = False,
    ) -> "ModelSource":
        """With the defaults of this machine. ValueError for what cannot be, before anything is loaded.

        model: a checkpoint directory; for synthetic weights also a config.json, or what stands in one.
        """
        if isinstance(model, Mapping) and not synthetic:
            raise ValueError("a configuration alone has no weights; synthetic=True makes some")
        config = parse_config(dict(model)) if isinstance(model, Mapping) else read_config(model)
        config = config.with_overrides(**(config_overrides or {}))
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if world_size() > 1 and ":" in device:
            raise ValueError(
                f"device is {device!r}; among {world_size()} ranks each has its own: cuda or cpu is wanted"
            )
        check_device(device)
        check_backend(backend, device)
        if precision is None:
            on_cpu = torch.device(device).type == "cpu"
            precision = "exact" if on_cpu else "fp8" if config.weight_block is not None else "bf16"
        directory = None if synthetic or isinstance(model, Mapping) else Path(model)
        return cls(config, directory, precision, backend, device)

    def load(self, device: str, ranks: Ranks | None, progress: Progress | None = None) -> Transformer:
        """The model, or this rank's share, on `device`. ValueError if it does not fit, or is not whole."""
        size = ranks.size if ranks else 1
        check_fits(self.config, self.precision, device, size)
        if self.directory is not None:
            arguments = (self.directory, self.config, self.precision, self.backend, device)
            return load_checkpoint(*arguments, progress, ranks)
        self.config.check_precision(self.precision)
        model = build_model(self.config, self.precision, self.backend, device, ranks)
        fill_synthetic(model, Plan(self.config, ranks.rank, ranks.size) if ranks else Plan(self.config), self.seed)
        return model

    def to_json(self) -> dict[str, Any]:
        directory = None if self.directory is None else str(self.directory.resolve())
        values = {"config": config_json(self.config), "directory": directory}
        return values | {name: getattr(self, name) for name in ("precision", "backend", "device", "seed")}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ModelSource":
        directory = None if values["directory"] is None else Path(values["directory"])
        return cls(**values | {"config": parse_config(values["config"]), "directory": directory})


class Worker:
    """A rank that follows: what it does on rank 0's messages."""

    def __init__(self, job: Follower) -> None:
        self._job = job
        self._batches = BatchDecoder()
        self._source: ModelSource
        self._device: str
        self._model: Transformer
        self._runner: Runner

    def handle(self, message: dict[str, Any], arrays: list[np.ndarray]) -> None:
        """One of load, measure, start, fill and step, in this order."""
        kind, message = message["kind"], {key: message[key] for key in message.keys() - {"kind"}}
        if kind == "load":
            self._source = ModelSource.from_json(message)
            self._device = check_device(device_of(self._source.device))
            self._model = self._source.load(self._device, self._job.ranks(self._device))
            self._job.reply({})
        elif kind == "measure":
            pages = count_pages(Room(**message), self._model, self._source.precision, self._device, self._job.size)
            self._job.reply({"pages": pages})
        elif kind == "start":
            limits = Limits(**message)
            caches = allocate(
                self._model.config, self._source.precision, limits.page_count + SCRATCH_PAGES, self._device
            )
            self._runner = make_runner(self._model, self._model.config, caches, limits, self._device)
        elif kind == "fill":
            fill_synthetic_caches(self._model.config, self._runner.caches, self._model.compute.backend)
        else:
            assert kind == "step", kind
            batch = self._batches.decode(arrays, message["decodes"])
            _share_draws(batch, self._runner)
            self._runner.run(batch, _unheard if message["inspect"] else None)


class LeadingRunner:
    """Rank 0's runner: tells the others of each step before it runs it."""

    def __init__(self, job: Leader, limits: Limits, runner: Runner) -> None:
        self._job, self._runner = job, runner
        job.before_end.append(self._close)
        job.tell("start", asdict(limits))
        self._batches = BatchEncoder()

    @property
    def supports_async_scheduling(self) -> bool:
        return self._runner.supports_async_scheduling

    @property
    def caches(self) -> list[LayerCache]:
        return self._runner.caches

    def stage_tokens(self, tokens: torch.Tensor) -> None:
        """As `Runner.stage_tokens`; the others get it with the step that needs it."""
        self._runner.stage_tokens(tokens)

    def run(self, batch: Batch, on_selection: SelectionCallback | None = None) -> torch.Tensor:
        """As `Runner.run`. A step that fails ends the job: nobody knows how far the others got."""
        with self._job.together():
            header = {"decodes": batch.decodes, "inspect": on_selection is not None}
            self._job.tell("step", header, self._batches.encode(batch))
            _share_draws(batch, self._runner)
            return self._runner.run(batch, on_selection)

    def _close(self) -> None:
        """Let go of the decode graphs, which hold the ranks' collectives."""
        del self._runner


def lead_loading(job: Leader | None, source: ModelSource, progress: Progress | None = None) -> Transformer:
    """Load the model here, and its other shares on the other ranks."""
    device = check_device(device_of(source.device) if job else source.device)
    check_fits(source.config, source.precision, device, job.size if job else 1)
    if job is None:
        return source.load(device, None, progress)
    if job.leads:
        raise ValueError("several ranks run one model, and this is the program's second LLM")
    job.leads = True
    job.tell("load", source.to_json())
    model = source.load(device, job.ranks(device), progress)
    job.ask()
    return model


def lead_filling(job: Leader | Follower | None, runner: ModelRunner, model: Model) -> None:
    """Fill all ranks' caches as long prompts would, with random entries: to measure decoding."""
    assert not isinstance(job, Follower) and isinstance(runner, Runner | LeadingRunner)
    assert isinstance(model, Transformer)
    if job is not None:
        job.tell("fill")
    fill_synthetic_caches(model.config, runner.caches, model.compute.backend)


def lead_counting(job: Leader | None, room: Room, model: Transformer, precision: Precision) -> int:
    """How many pages there are memory for, on every rank."""
    device = str(model.compute.device)
    if job is None:
        return count_pages(room, model, precision, device, 1)
    job.tell("measure", asdict(room))
    with job.together():
        own = count_pages(room, model, precision, device, job.size)
    return min(own, *(reply["pages"] for reply in job.ask()))


def count_pages(room: Room, model: Transformer, precision: Precision, device: str, ranks: int) -> int:
    """What this rank has memory for, next to the weights and the largest step."""
    config = model.config
    step = measure_step(model, config, precision, device, room.max_batch_tokens, room.max_sequences, room.max_model_len)
    return pages_in_memory(config, precision, device, room.max_model_len, room.memory_fraction, step, ranks)


def _share_draws(batch: Batch, runner: Runner) -> None:
    """Rank 0 draws: where a step takes tokens from the device, it takes them from rank 0's."""
    if batch.sampled_rows:
        dist.broadcast(runner.sampled, 0)


def _unheard(layer: int, rows: torch.Tensor, selection: Selection) -> None:
    """What was selected is told on rank 0; the others only take part in gathering it."""
