"""DeepGEMM's FP8 products, as an importable package or as a shared library with the C functions of SIGNATURES."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from deepseek_v32.kernels.types import Quantized

from . import library

SIGNATURES = """\
Functions of a library given by --deep-gemm; each returns 0, or a CUDA error. Pointers are to device memory, all contiguous:
a [m, k] and b [groups, n, k] e4m3, out [m, n] bf16, b_scale fp32 [groups, ceil(n / 128), k / 128]. a_scale is transposed: fp32
[k / 128, m rounded up to 4]. In masked products a, a_scale and out begin with an axis of groups.
  int deep_gemm_fp8(void *a, float *a_scale, void *b, float *b_scale, void *out, int m, int n, int k, void *stream)
  int deep_gemm_fp8_contiguous(void *a, float *a_scale, void *b, float *b_scale, void *out, int *expert_of_row, int groups, int m,
                               int n, int k, void *stream)
                               rows sorted by expert, each expert's padded to a multiple of 128; -1: a row of padding
  int deep_gemm_fp8_masked(void *a, float *a_scale, void *b, float *b_scale, void *out, int *rows, int groups, int m, int n, int k,
                           int expected_rows, void *stream)
                               rows[e] of the m rows of group e are computed
"""

Call = Callable[[], Sequence[torch.Tensor]]


class Peer(Protocol):
    """Each method prepares the operands, scales of a transposed included, and returns a call that gives the product in bf16."""

    def product(self, a: Quantized, b: Quantized) -> Call: ...

    def contiguous(self, a: Quantized, b: Quantized, expert_of_row: torch.Tensor) -> Call: ...

    def masked(self, a: Quantized, b: Quantized, rows: torch.Tensor, expected_rows: int) -> Call: ...


class Package:
    """The package `deep_gemm`."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("deep_gemm")

    def _transposed(self, a: Quantized) -> tuple[torch.Tensor, torch.Tensor]:
        return a.values, self._module.get_mn_major_tma_aligned_tensor(a.scales)

    def product(self, a: Quantized, b: Quantized) -> Call:
        operands = self._transposed(a), tuple(b)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._module.fp8_gemm_nt(*operands, out)
            return (out,)

        return call

    def contiguous(self, a: Quantized, b: Quantized, expert_of_row: torch.Tensor) -> Call:
        operands = self._transposed(a), tuple(b)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._module.m_grouped_fp8_gemm_nt_contiguous(*operands, out, expert_of_row)
            return (out,)

        return call

    def masked(self, a: Quantized, b: Quantized, rows: torch.Tensor, expected_rows: int) -> Call:
        operands = self._transposed(a), tuple(b)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._module.m_grouped_fp8_gemm_nt_masked(*operands, out, rows, expected_rows)
            return (out,)

        return call


class Library:
    """A shared library with the functions of SIGNATURES."""

    def __init__(self, path: str) -> None:
        self._run = library.Library(path).run

    @staticmethod
    def _transposed(a: Quantized) -> torch.Tensor:
        rows = a.scales.shape[-2]
        padded = torch.nn.functional.pad(a.scales, (0, 0, 0, -rows % 4))
        return padded.transpose(-1, -2).contiguous()

    def product(self, a: Quantized, b: Quantized) -> Call:
        scales, sizes = self._transposed(a), (a.values.shape[0], *b.values.shape)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._run("deep_gemm_fp8", a.values, scales, *b, out, *sizes)
            return (out,)

        return call

    def contiguous(self, a: Quantized, b: Quantized, expert_of_row: torch.Tensor) -> Call:
        groups, n, k = b.values.shape
        scales, sizes = self._transposed(a), (groups, a.values.shape[0], n, k)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._run("deep_gemm_fp8_contiguous", a.values, scales, *b, out, expert_of_row, *sizes)
            return (out,)

        return call

    def masked(self, a: Quantized, b: Quantized, rows: torch.Tensor, expected_rows: int) -> Call:
        groups, n, k = b.values.shape
        scales, sizes = self._transposed(a), (groups, a.values.shape[1], n, k)

        def call() -> Sequence[torch.Tensor]:
            out = _output(a.values, b.values)
            self._run("deep_gemm_fp8_masked", a.values, scales, *b, out, rows, *sizes, expected_rows)
            return (out,)

        return call


def _output(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.empty(*a.shape[:-1], b.shape[-2], dtype=torch.bfloat16, device=a.device)
