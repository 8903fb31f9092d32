"""The implementations of each operation.

An implementation of operation ``f`` is the function ``f`` of ``kernels/<backend>/<module>.py``. registry.py chooses one.
"""

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Literal

import torch

from . import device as hardware

INVARIANT = "invariant"  # the backend of batch-invariant implementations that are no other backend's

_16BIT = frozenset({torch.bfloat16, torch.float16})
_BF16 = frozenset({torch.bfloat16})
_FP8 = frozenset({torch.float8_e4m3fn})
_LATENT = 576  # the released model's latent and RoPE dims, which the attention kernels are written for
_INDEX = 128  # dims of the released model's index keys


@dataclass(frozen=True, eq=False)  # each is one object, so that its hash is cheap
class Implementation:
    """One implementation of an operation.

    `dtypes` and `width` (the last dimension) say which leading tensors it supports; None: all. `invariant`: the bits of a row of
    the result depend only on that row's inputs, on a CPU for the references and on a Hopper GPU for compiled ones
    (docs/determinism.md). `device`: of an implementation in kernels/invariant, the type of the devices that it is written for.
    """

    backend: str
    module: str
    dtypes: frozenset[torch.dtype] | None = None
    width: int | None = None
    invariant: bool = False
    device: Literal["cpu", "cuda"] = "cpu"

    @property
    def capturable(self) -> bool:
        """Return whether it runs without waiting for the device, so that a CUDA graph can hold it."""
        return self.backend != "reference" and (self.backend, self.device) != (INVARIANT, "cpu")

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
    reference = Implementation("reference", module, invariant=invariant is True)
    if not isinstance(invariant, str):
        return *compiled, reference
    return *compiled, Implementation(INVARIANT, invariant, invariant=True), reference


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
    "fp8_gemm": _with_reference("fp8_gemm", _cuda("fp8_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"),
    "fp8_gemms": _with_reference("fp8_gemm", _cuda("fp8_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"),
    "fp32_linear": _with_reference("fp32_ops", _cuda("fp32_ops"), _gpu("gpu.rows", _BF16), invariant="linear"),
    "layer_norm": _with_reference("fp32_ops", _cuda("fp32_ops"), _gpu("gpu.rows"), invariant=True),
    "route": _with_reference("routing", _cuda("routing"), _gpu("gpu.routing"), invariant="routing"),
    "group_by_expert": _with_reference("routing", _cuda_row("routing"), invariant=True),
    "grouped_gemm": _with_reference(
        "grouped_gemm",
        _cuda("grouped_gemm", _FP8),
        _tile("grouped_gemm", _BF16),
        _gpu("gpu.fp8_gemm", _FP8 | _BF16),
        invariant="linear",
    ),
    "grouped_gemm_with_shared": _with_reference(
        "grouped_gemm", _cuda("grouped_gemm"), _gpu("gpu.fp8_gemm"), invariant="linear"
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
    "rotate_queries": _with_reference("kv_up_projection", _cuda_row("kv_up_projection", _BF16), invariant=True),
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
    "select_topk": _with_reference("select_topk", _cuda_row("select_topk"), invariant=True),
    "select_topk_slots": _with_reference("select_topk", _cuda_row("select_topk"), invariant=True),
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
    "dense_mla_decode": _with_reference("dense_mla", _cuda("dense_mla", _16BIT, _LATENT)),
    "paged_mla_decode_h16": _with_reference("dense_mla", _cuda("dense_mla", _BF16)),
}
