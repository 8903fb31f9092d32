"""Which bodies each operation has, and which of them runs here: decided once per (device, dtype, backend), never silently.

A body of operation ``f`` lives in ``kernels/<backend>/<module>.py`` under the same name and takes what the operation takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch

from . import device as hardware

Backend = Literal["auto", "reference", "tile", "cuda"]
BACKENDS = get_args(Backend)
# "cuda-first": as auto, but CUDA is tried before the others; what a whole model's backend "cuda" means.
_FIRST = "-first"

_16BIT = frozenset({torch.bfloat16, torch.float16})
_BF16 = frozenset({torch.bfloat16})
_FP8 = frozenset({torch.float8_e4m3fn})
_LATENT = 576  # the released model's latent and rope dims, which the attention kernels are written for
_INDEX = 128  # dims of its index keys


@dataclass(frozen=True)
class Body:
    """One implementation of an operation. `dtypes` and `width` (the last dimension) restrict its leading tensor; None takes all."""

    backend: str
    module: str
    dtypes: frozenset[torch.dtype] | None = None
    width: int | None = None

    def refusal(self, device: torch.device, dtype: torch.dtype, width: int | None = None) -> str | None:
        """Why this body cannot serve, or None if it can."""
        if self.backend == "reference":
            return None
        if not hardware.is_hopper(device):
            return f"{self.backend} needs a Hopper GPU (sm_90), this is {hardware.describe(device)}"
        package = {"tile": "tilelang", "cuda": "tvm_ffi"}[self.backend]
        if find_spec(package) is None:
            return f"{self.backend} needs {package}: pip install 'deepseek-v32[kernels]'"
        if self.dtypes is not None and dtype not in self.dtypes:
            return f"{self.backend} takes {sorted(map(str, self.dtypes))}, not {dtype}"
        if None not in (self.width, width) and width != self.width:
            return f"{self.backend} takes {self.width} dims, not {width}"
        return None


def _bodies(module: str, *compiled: Body) -> tuple[Body, ...]:
    return (*compiled, Body("reference", module))


# In order of preference: `auto` takes the first that can serve.
OPERATIONS: dict[str, tuple[Body, ...]] = {
    "quantize_blocks": _bodies("quantize", Body("tile", "quantize")),
    "rms_norm_quantize": _bodies("quantize", Body("tile", "quantize")),
    "swiglu_quantize": _bodies("quantize", Body("tile", "quantize")),
    "hadamard_transform": _bodies("hadamard", Body("tile", "hadamard")),
    "rotate_quantize": _bodies("hadamard", Body("tile", "hadamard")),
    "fp8_gemm": _bodies("fp8_gemm", Body("cuda", "fp8_gemm"), Body("tile", "fp8_gemm")),
    "fp8_gemms": _bodies("fp8_gemm", Body("cuda", "fp8_gemm"), Body("tile", "fp8_gemm")),
    "fp32_linear": _bodies("fp32_ops", Body("cuda", "fp32_ops")),
    "layer_norm": _bodies("fp32_ops", Body("cuda", "fp32_ops")),
    "route": _bodies("routing", Body("cuda", "routing")),
    "group_by_expert": _bodies("routing", Body("cuda", "routing")),
    "grouped_gemm": _bodies(
        "grouped_gemm", Body("cuda", "grouped_gemm", _FP8), Body("tile", "grouped_gemm", _FP8 | _BF16)
    ),
    "grouped_gemm_with_shared": _bodies("grouped_gemm", Body("cuda", "grouped_gemm"), Body("tile", "grouped_gemm")),
    "combine_experts": _bodies("routing", Body("cuda", "routing")),
    "absorb_queries": _bodies("kv_up_projection", Body("cuda", "kv_up_projection", _BF16)),
    "expand_quantize": _bodies("kv_up_projection", Body("cuda", "kv_up_projection", _BF16)),
    "write_latent_cache": _bodies("cache_write", Body("tile", "cache_write")),
    "write_index_cache": _bodies("cache_write", Body("tile", "cache_write")),
    "gather_latents": _bodies("cache_write", Body("tile", "cache_write")),
    "indexer_logits": _bodies(
        "indexer_logits",
        Body("cuda", "indexer_logits", _FP8, _INDEX),
        Body("tile", "indexer_logits", _FP8 | _BF16, _INDEX),
    ),
    "paged_indexer_logits": _bodies(
        "indexer_logits",
        Body("cuda", "indexer_logits", _FP8, _INDEX),
        Body("tile", "indexer_logits", _FP8 | _BF16, _INDEX),
    ),
    "select_topk": _bodies("select_topk", Body("cuda", "select_topk"), Body("tile", "select_topk")),
    "select_topk_slots": _bodies("select_topk", Body("cuda", "select_topk"), Body("tile", "select_topk")),
    "sparse_mla_prefill": _bodies(
        "sparse_mla_prefill",
        Body("cuda", "sparse_mla_prefill", _BF16, _LATENT),
        Body("tile", "sparse_mla_prefill", _BF16, _LATENT),
    ),
    "sparse_mla_decode": _bodies("sparse_mla_decode", Body("cuda", "sparse_mla_decode", _BF16, _LATENT)),
    "mha_prefill": _bodies("dense_mla", Body("cuda", "mha_prefill", _BF16)),
    "dense_mla_decode": _bodies(
        "dense_mla", Body("cuda", "dense_mla", _16BIT, _LATENT), Body("tile", "dense_mla", _16BIT, _LATENT)
    ),
    "paged_mla_decode_h16": _bodies("dense_mla", Body("cuda", "dense_mla", _BF16)),
}


def leading_dtype(operation: str, precision: str) -> torch.dtype:
    """What a model's leading tensor of an operation is, in exact, bf16 or fp8 precision."""
    if precision == "exact" or operation.startswith("select_topk") or operation == "route":
        return torch.float32
    if precision == "fp8" and ("_gemm" in operation or operation.endswith("indexer_logits")):
        return torch.float8_e4m3fn
    return torch.bfloat16


@cache
def choose_body(
    operation: str,
    device: torch.device,
    dtype: torch.dtype,
    backend: str,
    width: int | None = None,
    first: str | None = None,
) -> Body:
    """The body that serves `operation` on this device, dtype and width; ValueError says what exists if none does.

    `first`: the backend that auto tries before the others, for cases in which it was measured to be the fastest.
    """
    _check_name(backend.removesuffix(_FIRST))
    if backend.endswith(_FIRST):
        backend, first = "auto", backend.removesuffix(_FIRST)
    bodies = [body for body in OPERATIONS[operation] if backend in ("auto", body.backend)]
    reasons = []
    for body in sorted(bodies, key=lambda body: body.backend != first):
        reason = body.refusal(device, dtype, width)
        if reason is None:
            return body
        reasons.append(reason)
    existing = ", ".join(body.backend for body in OPERATIONS[operation])
    why = "; ".join(reasons) or f"it has {existing}"
    raise ValueError(f"{operation} has no {backend} implementation for {dtype} on {hardware.describe(device)}: {why}")


@cache
def _load(operation: str, body: Body) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"..{body.backend}.{body.module}", __name__), operation)
    return function


def choose(operation: str, tensor: torch.Tensor, backend: str, first: str | None = None) -> Callable[..., Any]:
    """The function that serves `operation` for a tensor like this one; `first` as for choose_body."""
    # Other operations see a new width at every step, which the cache of choices need not remember.
    width = tensor.shape[-1] if any(body.width for body in OPERATIONS[operation]) else None
    return _load(operation, choose_body(operation, tensor.device, tensor.dtype, backend, width, first))


def preferred(backend: str) -> str:
    """What a model passes to its operations for its own backend: a compiled one serves where it has a body, as auto elsewhere."""
    return backend + _FIRST if backend in ("tile", "cuda") else backend


def check_backend(backend: str, device: str) -> None:
    """ValueError if nothing of `backend` can run on this device."""
    _check_name(backend)
    if all(line.chosen == "none" for line in describe(torch.device(device), backend)):
        raise ValueError(
            f"backend is {backend!r}, which needs a Hopper GPU (sm_90) and the packages of 'deepseek-v32[kernels]'; this is "
            f"{hardware.describe(torch.device(device))}; auto takes the best there is"
        )


def _check_name(backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}, expected one of {', '.join(BACKENDS)}")


@dataclass(frozen=True)
class Choice:
    """One line of `deepseek-v32 doctor`."""

    operation: str
    chosen: str
    available: tuple[str, ...]
    refusals: tuple[str, ...]


def describe(device: torch.device, backend: str = "auto", precision: str = "fp8") -> list[Choice]:
    """What would run for every operation of a model in this precision on this device; "none" if `backend` cannot run here."""
    lines = []
    for operation, bodies in OPERATIONS.items():
        dtype = leading_dtype(operation, precision)
        usable = [body.backend for body in bodies if body.refusal(device, dtype) is None]
        wanted = [name for name in usable if name == backend] or usable
        refusals = tuple(reason for body in bodies if (reason := body.refusal(device, dtype)) is not None)
        lines.append(Choice(operation, wanted[0], tuple(usable), refusals))
    if backend in ("tile", "cuda") and all(line.chosen != backend for line in lines):
        return [replace(line, chosen="none") for line in lines]
    return lines
