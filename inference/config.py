"""A caller's choices about a model and its engine, and the sizes that follow (`sizing.resolve_limits`). Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from ..kernels.errors import ArgumentError, check_flags
from ..model.config import Precision
from .text.messages import ChatFormat

MAX_DRAFT_TOKENS = 4
AUTO = -1  # speculative_tokens: chosen by the rules of drafting/policy.py


# The fields of EngineConfig that size the engine around a model in memory.
LIMITS = {
    *("max_model_len", "max_batch_tokens", "max_sequences", "page_count", "memory_fraction"),
    *("reuse_pages", "decode_graphs", "check_cache", "speculative_tokens"),
}

_ALONE = ("deterministic", "offload", "check_cache")  # fields of EngineConfig that do not go with attention="data"


def most_rows(max_sequences: int, max_batch_tokens: int, drafts: bool) -> int:
    """Return the most rows of logits in a step: one for each sequence, and one more for each draft."""
    return min(max_sequences * (1 + MAX_DRAFT_TOKENS if drafts else 1), max_batch_tokens)


def check_drafts(value: object) -> None:
    """Raise ArgumentError unless `value` is a number of drafts, or "auto"."""
    if value != "auto" and (type(value) is not int or value not in range(MAX_DRAFT_TOKENS + 1)):
        raise ArgumentError("speculative_tokens", f"{value!r}", f"0 to {MAX_DRAFT_TOKENS}, or 'auto'")


@dataclass(frozen=True)
class EngineConfig:
    """The choices of LLM's caller; `LLM.__init__` explains them. None stands for the default of the machine or the checkpoint.

    ValueError for a value of another type: Python would take most of them for something.
    """

    device: str | None = None
    precision: Precision | None = None
    backend: str = "auto"
    tensor_parallel_size: int | None = None
    max_model_len: int | None = None
    max_batch_tokens: int | None = None
    max_sequences: int | None = None
    page_count: int | None = None
    memory_fraction: float | None = None
    reuse_pages: bool = True
    decode_graphs: bool = True
    check_cache: bool = False
    speculative_tokens: int | Literal["auto"] = "auto"
    deterministic: bool = False
    chat_format: ChatFormat | None = None
    config_overrides: Mapping[str, Any] | None = None
    synthetic: bool = False
    verify_hashes: bool = True
    offload: Literal["experts"] | None = None
    expert_slots: int | None = None
    attention: Literal["data"] | None = None
    spare_core: bool = False  # on a CPU, decodes leave one core to the program's other threads

    @property
    def observers(self) -> tuple[str, ...]:
        """The observers of the runner that the caller has asked for, by their names in extensions.py."""
        return ("CacheCheck",) if self.check_cache else ()

    def __post_init__(self) -> None:
        flags = ("synthetic", "verify_hashes", "deterministic", "reuse_pages", "decode_graphs", "check_cache")
        check_flags(**{name: getattr(self, name) for name in flags})
        integers = ("max_model_len", "max_batch_tokens", "max_sequences", "page_count", "expert_slots")
        precisions, overrides = get_args(Precision), self.config_overrides
        for name, good, expected in (
            *((name, type(getattr(self, name)) in (int, type(None)), "an integer or None") for name in integers),
            ("memory_fraction", type(self.memory_fraction) in (int, float, type(None)), "a number or None"),
            ("device", isinstance(self.device, str | None), "a text such as 'cuda', or None"),
            ("precision", self.precision in (None, *precisions), f"{', '.join(precisions)} or None"),
            ("offload", self.offload in (None, "experts"), "'experts' or None"),
            ("offload", self.offload is None or not self.synthetic, "None for synthetic weights, which are in no file"),
            ("expert_slots", self.expert_slots is None or self.offload is not None, "None without offload='experts'"),
            ("attention", self.attention in (None, "data"), "'data' or None"),
            *(("attention", self.attention is None or not getattr(self, name), f"None with {name}") for name in _ALONE),
            (
                "attention",
                self.attention is None or self.speculative_tokens in (0, "auto"),
                "None with speculative_tokens",
            ),
            (
                "config_overrides",
                isinstance(overrides, Mapping | None) and all(isinstance(each, str) for each in overrides or ()),
                "a dict with names of the configuration, or None",
            ),
        ):
            if not good:
                raise ArgumentError(name, f"{getattr(self, name)!r:.100}", expected)


# Arguments of vLLM's LLM that have another name here.
VLLM_NAMES = {
    "model": "path",
    "dtype": "precision",
    "max_num_seqs": "max_sequences",
    "max_num_batched_tokens": "max_batch_tokens",
    "gpu_memory_utilization": "memory_fraction",
    "num_gpu_blocks_override": "page_count",
    "enable_prefix_caching": "reuse_pages",
    "hf_overrides": "config_overrides",
}


def unexpected_argument(name: str) -> TypeError:
    """Make LLM's error for an unknown argument, with the name that was probably meant."""
    near = get_close_matches(name, [field.name for field in fields(EngineConfig)], n=1)
    meant = VLLM_NAMES.get(name) or (near[0] if near else None)
    return TypeError(f"LLM has no argument {name}{f'; did you mean {meant}?' if meant else ''}")


@dataclass(frozen=True)
class CacheBudget:
    """Inputs for the number of cache pages and for the largest step."""

    max_batch_tokens: int
    max_sequences: int
    max_model_len: int
    memory_fraction: float
    observers: tuple[str, ...] = ()
    page_count: int | None = None  # if it is given
    expert_slots: int | None = None  # for offloaded experts, if it is given
    data_ranks: int = 1  # as in Limits


@dataclass(frozen=True)
class Limits:
    """Resolved and checked sizes."""

    max_model_len: int  # tokens of prompt and answer of one request together
    max_batch_tokens: int  # tokens per step
    max_sequences: int  # requests running at a time
    page_count: int  # pages of 64 tokens, of each of the data_ranks
    reuse_pages: bool  # serve a prefix that earlier prompts share from the cache
    decode_graphs: bool = True  # run decode steps as CUDA graphs, where that is possible
    observers: tuple[str, ...] = ()  # of the runner's steps, on every rank: names of the table in extensions.py
    speculative_tokens: int = 0  # drafts that the checkpoint's draft layer makes a step; 0: none; or AUTO
    data_ranks: int = 1  # ranks among which sequences are divided; 1: all ranks' caches hold all sequences
    spare_core: bool = False  # on a CPU, decodes leave one core to the program's other threads

    @property
    def rank_tokens(self) -> int:
        """The most tokens that one rank computes in a step."""
        return -(-self.max_batch_tokens // self.data_ranks)
