"""The FP8 GEMMs. Large M is compared with the tensor cores, small M and experts with the bytes of the weights."""

from collections.abc import Iterator
from functools import partial

import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm
from deepseek_v32.kernels.types import Quantized

from .harness import COPY, Case, rotations_for

SHAPES = (  # N, K of the released model's projections, then those that an 8-way split adds
    *((2112, 7168), (1536, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)),
    *((8192, 1536), (128, 7168), (36864, 7168), (7168, 18432)),
    *((3072, 1536), (4096, 512), (4608, 7168), (7168, 2304)),
)
LARGE = ((4096, 7168), (7168, 16384), (2112, 7168), (24576, 1536), (32768, 512), (7168, 2048))
REQUIRED = LARGE[:2]
LARGE_WEIGHT = 20_000_000  # bytes; for larger weights a fraction of the bandwidth is required
EXPERTS = 32


def _codes(*shape: int, device: torch.device) -> torch.Tensor:
    """Normally distributed e4m3 values, made in parts because fp32 weights of all experts would not fit."""
    codes = torch.empty(*shape, dtype=torch.float8_e4m3fn, device=device)
    for part in codes.view(-1).split(1 << 26):
        part.copy_(torch.randn(part.shape, device=device) * 32)
    return codes


def _scales(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.rand(*shape, device=device) + 0.5


def _time_limits(size: int, must: float, aim: float) -> tuple[str, str]:
    """Microseconds at two fractions of the bandwidth."""
    return f"{size / COPY / must * 1e6:.1f}", f"{size / COPY / aim * 1e6:.1f}"


def _dense(m: int, n: int, k: int, device: torch.device) -> Case:
    size = n * k + m * k + 2 * m * n
    required = m == 4096 and (n, k) in REQUIRED
    calls = []
    for _ in range(rotations_for(size, 24)):
        a = Quantized(_codes(m, k, device=device), _scales(m, -(-k // 128), device=device))
        weight_scale = _scales(-(-n // 128), -(-k // 128), device=device)
        calls.append(partial(fp8_gemm, a, _codes(n, k, device=device), weight_scale))
    name = f"fp8 gemm, M={m}, N={n}, K={k}"
    if m >= 1024:
        limits = ("900", "1200") if required else ("", "")
        return Case(name, lambda i: calls[i](), len(calls), size, 2 * m * n * k, *limits, unit="TFLOPS")
    limits = _time_limits(n * k, 0.6, 0.85) if n * k >= LARGE_WEIGHT and m <= 64 else ("", "")
    return Case(name, lambda i: calls[i](), len(calls), size, 2 * m * n * k, *limits)


def _experts(rows: int, n: int, k: int, device: torch.device) -> Case:
    m = EXPERTS * rows
    size = EXPERTS * n * k + m * k + 2 * m * n
    a = Quantized(_codes(m, k, device=device), _scales(m, k // 128, device=device))
    weight_scale = _scales(EXPERTS, n // 128, k // 128, device=device)
    offsets = torch.arange(EXPERTS + 1, device=device, dtype=torch.int32) * rows
    call = partial(grouped_gemm, a, _codes(EXPERTS, n, k, device=device), offsets, weight_scale)
    name = f"fp8 grouped gemm, {EXPERTS} experts x {rows} rows, N={n}, K={k}"
    return Case(name, lambda _: call(), 1, size, 2 * m * n * k, *_time_limits(EXPERTS * n * k, 0.6, 0.85))


def cases(device: torch.device) -> Iterator[Case]:
    for n, k in LARGE:
        yield _dense(4096, n, k, device)
    for n, k in SHAPES:
        for m in (1, 16, 64, 128):
            yield _dense(m, n, k, device)
    for rows in (8, 128):
        for n, k in ((4096, 7168), (7168, 2048)):
            yield _experts(rows, n, k, device)
