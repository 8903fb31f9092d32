"""What an LLM is made of: read from a checkpoint, for one rank or several, or put around a model in memory."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from ..model.checkpoint.config_json import config_json
from ..model.config import ModelConfig, Precision
from .distributed.leader import Leader
from .distributed.leading_runner import LeadingRunner, count_pages_on_all_ranks, load_on_all_ranks
from .distributed.model_source import ModelSource
from .distributed.worker import loading_llm
from .engine.engine import Engine
from .engine.limits import AUTO, Limits
from .engine.running.observer import Model
from .engine.running.runner import make_runner
from .engine.sizing import resolve_limits
from .params import SamplingParams
from .prompts import check_flags
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
    default_params: SamplingParams = field(default_factory=SamplingParams)
    job: Leader | None = None  # of several ranks


def load_parts(
    path: str | Path | Mapping[str, Any] | None,
    *,
    device: str | None,
    precision: Precision | None,
    backend: str,
    tensor_parallel_size: int | None,
    chat_format: ChatFormat | None,
    config_overrides: dict[str, Any] | None,
    synthetic: bool,
    verify_hashes: bool,
    progress: Callable[..., Any] | None,
    speculative_tokens: int | Literal["auto"],
    deterministic: bool,
    **limits: Any,
) -> Parts:
    """Read a checkpoint and start its engine, as `LLM.__init__` describes; `limits` are the other ones of `resolve_limits`."""
    _check_arguments(synthetic=synthetic, verify_hashes=verify_hashes, deterministic=deterministic, **limits)
    _check_source(path, device, precision, config_overrides, progress)
    with loading_llm(tensor_parallel_size) as job:  # under torchrun, ranks other than 0 stay in this call
        ranks = 1 if job is None else job.size
        model_path: Any = (config_json(ModelConfig()) if synthetic else DEMO) if path is None else path
        source = ModelSource.resolve(
            model_path,
            device=device,
            precision=precision,
            backend=backend,
            config_overrides=config_overrides,
            synthetic=synthetic,
            verify_hashes=verify_hashes,
            deterministic=deterministic,
            ranks=ranks,
        )
        source, drafts = source.with_drafts(speculative_tokens)
        # Before the weights, so that broken settings do not cost the time to load them.
        directory = None if isinstance(model_path, Mapping) else Path(model_path)
        tokenizer = Tokenizer.from_directory(directory) if directory and directory.is_dir() else None
        default_params = SamplingParams(**sampling_defaults(directory)) if directory else SamplingParams()
        chat_format = resolve_chat_format(tokenizer, chat_format)
        model = load_on_all_ranks(job, source, progress)
        config, target = model.config, model.compute.device
        resolved = resolve_limits(
            *(config, source.precision, target),
            speculative_tokens=drafts,
            count_pages=lambda budget: count_pages_on_all_ranks(job, budget, model),
            **_with_observers(limits),
        )
        own = make_runner(model, config, source.precision, resolved, target, ranks)
        runner = own if job is None else LeadingRunner(job, resolved, own)
        engine = Engine(runner, config, resolved, tokenizer)
        if job is not None and job.children is not None:
            # For an LLM that nobody closes. A stream may outlive it, so the children are needed for as long as the engine.
            weakref.finalize(engine, job.end).atexit = False
        sizes = (resolved, source.precision, target)
        return Parts(model, engine, config, tokenizer, chat_format, *sizes, default_params, job)


def parts_around(
    model: Model,
    config: ModelConfig,
    tokenizer: Tokenizer | None,
    *,
    precision: Precision,
    device: str,
    chat_format: ChatFormat | None,
    **limits: Any,
) -> Parts:
    """The engine of a model that is in memory already."""
    _check_arguments(**limits)
    if limits.get("speculative_tokens") == "auto":
        limits["speculative_tokens"] = AUTO if getattr(model, "mtp", None) is not None else 0
    chat_format = resolve_chat_format(tokenizer, chat_format)
    resolved = resolve_limits(config, precision, device, **_with_observers(limits))
    runner = make_runner(model, config, precision, resolved, device)
    engine = Engine(runner, config, resolved, tokenizer)
    return Parts(model, engine, config, tokenizer, chat_format, resolved, precision, torch.device(device))


def _with_observers(limits: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `resolve_limits`: check_cache attaches an observer."""
    rest = {name: value for name, value in limits.items() if name != "check_cache"}
    return rest | {"observers": ("CacheCheck",)} if limits.get("check_cache") else rest


_FLAGS = ("synthetic", "verify_hashes", "deterministic", "reuse_pages", "decode_graphs", "check_cache")
_NUMBERS = ("max_model_len", "max_batch_tokens", "max_sequences", "page_count")


def _check_arguments(**values: Any) -> None:
    """ValueError for a flag that is no boolean, and a size that is no number: Python would take most of them for something."""
    check_flags(**{name: value for name, value in values.items() if name in _FLAGS})
    for name, value in values.items():
        if name in _NUMBERS and not (value is None or type(value) is int):
            raise ValueError(f"{name} is {value!r:.100}; expected an integer or None")
        if name == "memory_fraction" and not (value is None or type(value) in (int, float)):
            raise ValueError(f"{name} is {value!r:.100}; expected a number or None")


def _check_source(path: Any, device: Any, precision: Any, config_overrides: Any, progress: Any) -> None:
    """ValueError for a value of a type, or a precision, that is none of these arguments'."""
    precisions = (None, *get_args(Precision))
    for name, value, good, expected in (
        ("path", path, isinstance(path, str | Path | Mapping | None), "a directory, as a text or a Path, or None"),
        ("device", device, isinstance(device, str | None), "a text such as 'cuda', or None"),
        ("precision", precision, precision in precisions, f"{', '.join(get_args(Precision))} or None"),
        ("progress", progress, progress is None or callable(progress), "a function or None"),
        (
            "config_overrides",
            config_overrides,
            isinstance(config_overrides, Mapping | None)
            and all(isinstance(each, str) for each in config_overrides or ()),
            "a dict with names of the configuration, or None",
        ),
    ):
        if not good:
            raise ValueError(f"{name} is {value!r:.100}; expected {expected}")
