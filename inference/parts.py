"""The parts of an LLM: read from a checkpoint, for one rank or several, or put around a model in memory."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..kernels.errors import ArgumentError
from ..model.checkpoint.config_json import config_json, read_config
from ..model.config import ModelConfig, Precision
from ..model.demo import NAME
from .config import AUTO, EngineConfig, Limits, check_drafts
from .distributed.job import Leader
from .distributed.leading_runner import LeadingRunner, count_pages_on_all_ranks, load_on_all_ranks
from .distributed.model_source import ModelSource
from .distributed.worker import loading_llm
from .engine.engine import Engine
from .engine.request_maker import RequestMaker
from .engine.running.observer import Model
from .engine.running.runner import make_runner
from .engine.sizing import resolve_limits
from .engine.warm_up import capture_first_graphs
from .params import SamplingParams
from .text.messages import ChatFormat, resolve_chat_format
from .text.settings import sampling_defaults
from .text.tokenizer import Tokenizer

DEMO = Path(__file__).resolve().parent.parent / "model" / "demo"


@dataclass(frozen=True)
class Parts:
    """The engine of an LLM, and what it has been made from."""

    model: Model
    engine: Engine
    config: ModelConfig
    tokenizer: Tokenizer | None
    chat_format: ChatFormat
    limits: Limits
    precision: Precision
    device: torch.device
    job: Leader | None = None  # of several ranks
    checkpoint: str = ""  # its name; "" for a model that was in memory


def load_parts(
    path: str | Path | Mapping[str, Any] | None, chosen: EngineConfig, progress: Callable[..., Any] | None = None
) -> Parts:
    """Read a checkpoint and start its engine, as `LLM.__init__` describes."""
    if not isinstance(path, str | Path | Mapping | None):
        raise ArgumentError("path", f"{path!r:.100}", "a directory, as a text or a Path, or None")
    if not (progress is None or callable(progress)):
        raise ArgumentError("progress", f"{progress!r:.100}", "a function or None")
    ranks = chosen.tensor_parallel_size
    if isinstance(ranks, int) and ranks > 1 and chosen.device is None and not torch.cuda.is_available():
        expected = f"1 where no GPU is visible, or device cpu for {ranks} processes on this machine's CPU"
        raise ArgumentError("tensor_parallel_size", ranks, expected)
    with loading_llm(chosen.tensor_parallel_size) as job:  # under torchrun, ranks other than 0 stay in this call
        ranks = 1 if job is None else job.size
        model_path: Any = (config_json(ModelConfig()) if chosen.synthetic else DEMO) if path is None else path
        source = ModelSource.resolve(model_path, chosen, ranks)
        source, drafts = source.with_drafts(chosen.speculative_tokens)
        # Before the weights, so that broken settings do not cost the time to load them.
        directory = None if isinstance(model_path, Mapping) else Path(model_path)
        tokenizer = Tokenizer.from_directory(directory) if directory and directory.is_dir() else None
        default_params, max_new_tokens = SamplingParams(), None
        if directory:
            default_params = sampling_defaults(directory, SamplingParams)
            max_new_tokens = sampling_defaults(directory, dict[str, Any]).get("max_tokens")
        chat_format = resolve_chat_format(tokenizer, chosen.chat_format)
        model = load_on_all_ranks(job, source, chosen, progress)
        config, target = model.config, model.compute.device
        count = partial(count_pages_on_all_ranks, job, model=model)
        data_ranks = ranks if source.divides_sequences else 1
        resolved = resolve_limits(config, source.precision, target, chosen, drafts, count, data_ranks)
        own = make_runner(model, config, source.precision, resolved, target, ranks)
        runner = own if job is None else LeadingRunner(job, resolved, own)
        requests = RequestMaker(config, resolved, tokenizer, chat_format, default_params, max_new_tokens)
        engine = Engine(runner, config, resolved, tokenizer, requests=requests)
        capture_first_graphs(engine, own.graphs)
        if job is not None and job.children is not None:
            # For an LLM that is never closed. A stream may outlive it, so the children are needed for as long as the engine.
            weakref.finalize(engine, job.end).atexit = False
        sizes = (resolved, source.precision, target)
        name = "synthetic weights" if source.directory is None else checkpoint_name(source.directory)
        return Parts(model, engine, config, tokenizer, chat_format, *sizes, job, name)


def checkpoint_name(directory: Path) -> str:
    """The demo's name for the demo and its copies, which their dimensions tell; else the directory's name."""
    name = directory.resolve().name
    if (DEMO / "config.json").exists() and read_config(directory) == read_config(DEMO):
        return NAME
    return name if name != NAME else f"{name}, another model"


def parts_around(model: Model, config: ModelConfig, tokenizer: Tokenizer | None, chosen: EngineConfig) -> Parts:
    precision, device, drafts = chosen.precision or "exact", chosen.device or "cpu", chosen.speculative_tokens
    check_drafts(drafts)
    guesses = getattr(model, "mtp", None) is not None
    if drafts == "auto":
        drafts = AUTO if guesses else 0
    elif drafts and not guesses:
        raise ArgumentError("speculative_tokens", drafts, "0 or 'auto': the model has no MTP layer")
    chat_format = resolve_chat_format(tokenizer, chosen.chat_format)
    resolved = resolve_limits(config, precision, device, chosen, drafts)
    runner = make_runner(model, config, precision, resolved, device)
    requests = RequestMaker(config, resolved, tokenizer, chat_format)
    engine = Engine(runner, config, resolved, tokenizer, requests=requests)
    capture_first_graphs(engine, runner.graphs)
    return Parts(model, engine, config, tokenizer, chat_format, resolved, precision, torch.device(device))
