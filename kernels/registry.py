"""The implementations of each operation, and which of them runs: chosen once per (device, dtype, backend), never silently.

An implementation of operation ``f`` is the function ``f`` of ``kernels/<backend>/<module>.py``. Only this table chooses one.
`plan_decode` and `plan_dense` ask it which implementation will run and make that one's split-KV plan; they choose nothing.
`converts_context` and `attends_as_decode` (sparse_mla_prefill.py) choose between two operations, not between implementations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch

from . import device as hardware
from .errors import ArgumentError

Backend = Literal["auto", "reference", "tile", "cuda"]
BACKENDS = get_args(Backend)
# Backends in the order in which they are tried. "auto" stands for all backends of an operation, the fastest first; INVARIANT for
# all implementations that are batch-invariant.
Preference = tuple[str, ...]
INVARIANT = "invariant"

_16BIT = frozenset({torch.bfloat16, torch.float16})
_BF16 = frozenset({torch.bfloat16})
_FP8 = frozenset({torch.float8_e4m3fn})
_LATENT = 576  # the released model's latent and RoPE dims, which the attention kernels are written for
_INDEX = 128  # dims of the released model's index keys


@dataclass(frozen=True)
class Implementation:
    """One implementation of an operation.

    `dtypes` and `width` (the last dimension) say which leading tensors it supports; None: all. `capturable`: it does not wait for
    the device, so that a CUDA graph can hold it. `invariant`: the bits of a row of the result depend only on that row's inputs, on
    a CPU for the references and on a Hopper GPU for compiled ones (docs/determinism.md). `device`: of an implementation in
    kernels/invariant, the type of the devices that it is written for.
    """

    backend: str
    module: str
    dtypes: frozenset[torch.dtype] | None = None
    width: int | None = None
    capturable: bool = True
    invariant: bool = False
    device: Literal["cpu", "cuda"] = "cpu"

    def unsupported_reason(self, device: torch.device, dtype: torch.dtype, width: int | None = None) -> str | None:
        """Return why this implementation does not support such a leading tensor, or None if it does."""
        if self.backend == "reference":
            return None
        if self.backend == INVARIANT and self.device == "cpu":
            return None if device.type == "cpu" else f"{INVARIANT} needs a CPU, this is {hardware.describe(device)}"
        if not hardware.is_hopper(device):
            return f"{self.backend} needs a Hopper GPU (sm_90), this is {hardware.describe(device)}"
        for package in {"tile": ("tilelang",), "cuda": ("tvm_ffi",)}.get(self.backend, ("tilelang", "tvm_ffi")):
            if find_spec(package) is None:
                return f"{self.backend} needs {package}: pip install 'deepseek-v32[kernels]'"
        if self.dtypes is not None and dtype not in self.dtypes:
            return f"{self.backend} supports {' and '.join(sorted(map(str, self.dtypes)))}, not {dtype}"
        if None not in (self.width, width) and width != self.width:
            return f"{self.backend} supports {self.width} dims, not {width}"
        return None


_cuda, _tile = partial(Implementation, "cuda"), partial(Implementation, "tile")
# The same, batch-invariant as they are; and what kernels/invariant/gpu makes of kernels that are not.
_cuda_row, _tile_row = partial(_cuda, invariant=True), partial(_tile, invariant=True)
_gpu = partial(Implementation, INVARIANT, invariant=True, device="cuda")


def _with_reference(
    module: str, *compiled: Implementation, invariant: str | bool = False
) -> tuple[Implementation, ...]:
    """Append the reference. invariant: True if it is batch-invariant on a CPU, or the module of an implementation that is."""
    reference = Implementation("reference", module, capturable=False, invariant=invariant is True)
    if not isinstance(invariant, str):
        return *compiled, reference
    return *compiled, Implementation(INVARIANT, invariant, capturable=False, invariant=True), reference


# The fastest first: "auto" takes the first that supports the leading tensor.
OPERATIONS: dict[str, tuple[Implementation, ...]] = {
    "quantize_blocks": _with_reference("quantize", _tile_row("quantize"), invariant=True),
    "rms_norm": _with_reference("quantize", _gpu("gpu.rows"), invariant=True),
    "rms_norm_quantize": _with_reference("quantize", _tile_row("quantize"), invariant=True),
    "swiglu": _with_reference("quantize", _gpu("quantize"), invariant="quantize"),
    "swiglu_quantize": _with_reference("quantize", _tile_row("quantize"), invariant="quantize"),
    "hadamard_transform": _with_reference("hadamard", _tile_row("hadamard"), invariant="hadamard"),
    "rotate_quantize": _with_reference("hadamard", _tile_row("hadamard"), invariant="hadamard"),
    "linear": _with_reference("linear", _gpu("gpu.linear", _BF16), invariant="linear"),
    "fp8_gemm": _with_reference(
        "fp8_gemm", _cuda("fp8_gemm"), _tile("fp8_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"
    ),
    "fp8_gemms": _with_reference(
        "fp8_gemm", _cuda("fp8_gemm"), _tile("fp8_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"
    ),
    "fp32_linear": _with_reference("fp32_ops", _cuda("fp32_ops"), _gpu("gpu.rows", _BF16), invariant="linear"),
    "layer_norm": _with_reference("fp32_ops", _cuda("fp32_ops"), _gpu("gpu.rows"), invariant=True),
    "route": _with_reference("routing", _cuda("routing"), _gpu("gpu.routing"), invariant="routing"),
    "group_by_expert": _with_reference("routing", _cuda_row("routing"), invariant=True),
    "grouped_gemm": _with_reference(
        "grouped_gemm",
        _cuda("grouped_gemm", _FP8),
        _tile("grouped_gemm", _FP8 | _BF16),
        _gpu("gpu.fp8_gemm", _FP8 | _BF16),
        invariant="linear",
    ),
    "grouped_gemm_with_shared": _with_reference(
        "grouped_gemm", _cuda("grouped_gemm"), _tile("grouped_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"
    ),
    "route_and_group": _with_reference("routing", _cuda("routing"), _gpu("gpu.routing"), invariant="routing"),
    "combine_experts": _with_reference("routing", _cuda_row("routing"), invariant="routing"),
    "combine_norm_quantize": _with_reference("routing", _cuda_row("routing"), invariant="routing"),
    "norm_and_cache": _with_reference(
        "norm_and_cache", _cuda("norm_and_cache"), _gpu("gpu.rows"), invariant="norm_and_cache"
    ),
    "absorb_queries": _with_reference(
        "kv_up_projection", _cuda("kv_up_projection", _BF16), _gpu("gpu.linear", _BF16), invariant="kv_up_projection"
    ),
    "expand_values": _with_reference("kv_up_projection", _gpu("gpu.linear", _BF16), invariant="kv_up_projection"),
    "expand_quantize": _with_reference(
        "kv_up_projection", _cuda("kv_up_projection", _BF16), _gpu("gpu.linear", _BF16), invariant="kv_up_projection"
    ),
    "write_latent_cache": _with_reference("cache_write", _tile_row("latent_write"), invariant=True),
    "write_index_cache": _with_reference("cache_write", _tile_row("index_write"), invariant="cache_write"),
    "stamp_tokens": _with_reference("cache_stamps", _cuda_row("cache_stamps"), invariant=True),
    "check_cache": _with_reference("cache_stamps", _cuda_row("cache_stamps"), invariant=True),
    "gather_latents": _with_reference("cache_write", _tile_row("cache_read"), invariant=True),
    "gather_index_keys": _with_reference("cache_write", _tile_row("cache_read"), invariant=True),
    "indexer_logits": _with_reference(
        "indexer_logits",
        _cuda_row("indexer_logits", _FP8, _INDEX),
        _tile("indexer_logits", _FP8 | _BF16, _INDEX),
        _gpu("gpu.indexer_logits", _BF16, _INDEX),
        invariant="indexer_logits",
    ),
    "paged_indexer_logits": _with_reference(
        "indexer_logits",
        _cuda_row("indexer_logits", _FP8, _INDEX),
        _tile_row("indexer_logits", _BF16, _INDEX),
        _tile("indexer_logits", _FP8, _INDEX),
        invariant="indexer_logits",
    ),
    "select_topk": _with_reference("select_topk", _cuda_row("select_topk"), _tile("select_topk"), invariant=True),
    "select_topk_slots": _with_reference("select_topk", _cuda_row("select_topk"), _tile("select_topk"), invariant=True),
    "sparse_mla_prefill": _with_reference(
        "sparse_mla_prefill",
        _cuda("sparse_mla_prefill", _BF16, _LATENT),
        _tile("sparse_mla_prefill", _BF16, _LATENT),
        _gpu("gpu.sparse_mla", _BF16, _LATENT),
        invariant="sparse_mla",
    ),
    "sparse_mla_decode": _with_reference(
        "sparse_mla_decode",
        _cuda("sparse_mla_decode", _BF16, _LATENT),
        _gpu("gpu.sparse_mla", _BF16, _LATENT),
        invariant="sparse_mla",
    ),
    "mha_prefill": _with_reference("dense_mla", _cuda("mha_prefill", _BF16)),
    "dense_mla_decode": _with_reference(
        "dense_mla", _cuda("dense_mla", _16BIT, _LATENT), _tile("dense_mla", _16BIT, _LATENT)
    ),
    "paged_mla_decode_h16": _with_reference("dense_mla", _cuda("dense_mla", _BF16)),
}


def leading_dtype(operation: str, precision: str) -> torch.dtype:
    """Return the dtype of the leading tensor that a model in exact, bf16 or fp8 precision passes to an operation."""
    if precision == "exact" or operation.startswith(("select_topk", "route")):
        return torch.float32
    if precision == "fp8" and ("_gemm" in operation or operation.endswith("indexer_logits")):
        return torch.float8_e4m3fn
    return torch.bfloat16


def preference_of(backend: str, deterministic: bool = False) -> Preference:
    """Return the preference that a model with this backend passes to its operations.

    "tile" or "cuda" runs where it has an implementation that supports the input, and the fastest other one elsewhere. An operation
    that gets "tile" or "cuda" as a string, by contrast, runs that implementation or raises. deterministic: any backend, but
    batch-invariant.
    """
    check_names((backend,))
    if deterministic:
        return (INVARIANT,)
    return (backend, "auto") if backend in ("tile", "cuda") else (backend,)


def _in_order(operation: str, preference: Preference) -> list[Implementation]:
    """Return the implementations that `preference` allows, each once."""
    return list(dict.fromkeys(one for name in preference for one in OPERATIONS[operation] if _allows(name, one)))


def _allows(name: str, implementation: Implementation) -> bool:
    if name == INVARIANT:
        return implementation.invariant
    return name in ("auto", implementation.backend) and implementation.backend != INVARIANT


@cache
def choose_implementation(
    operation: str, device: torch.device, dtype: torch.dtype, backend: str | Preference, width: int | None = None
) -> Implementation:
    """Return the implementation of `operation` for this device, dtype and width. ValueError, with the reasons, if none fits.

    `backend`: one backend, or several in order of preference.
    """
    preference = (backend,) if isinstance(backend, str) else backend
    check_names(preference)
    reasons = []
    for implementation in _in_order(operation, preference):
        reason = implementation.unsupported_reason(device, dtype, width)
        if INVARIANT in preference and implementation.backend == "reference" and device.type != "cpu":
            reason = "reference is batch-invariant only on a CPU"
        if reason is None:
            return implementation
        reasons.append(reason)
    asked = " or ".join(preference)
    why = "; ".join(reasons) or f"it has {', '.join(one.backend for one in OPERATIONS[operation])}"
    raise ValueError(f"{operation} has no {asked} implementation for {dtype} on {hardware.describe(device)}: {why}")


@cache
def _load(operation: str, implementation: Implementation) -> Callable[..., Any]:
    module = import_module(f"..{implementation.backend}.{implementation.module}", __name__)
    function: Callable[..., Any] = getattr(module, operation)
    return function


def choose(operation: str, tensor: torch.Tensor, backend: str | Preference) -> Callable[..., Any]:
    """Return the function that runs `operation` for this leading tensor. See choose_implementation for the other arguments."""
    # The width of other operations changes at every step: it would only fill the cache of choices.
    width = tensor.shape[-1] if any(one.width for one in OPERATIONS[operation]) else None
    return _load(operation, choose_implementation(operation, tensor.device, tensor.dtype, backend, width))


def check_names(preference: Preference) -> None:
    """Raise a ValueError if a name in `preference` is no backend."""
    for name in preference:
        if name not in (*BACKENDS, INVARIANT):
            raise ArgumentError("backend", f"{name!r}", f"one of {', '.join(BACKENDS)}")
