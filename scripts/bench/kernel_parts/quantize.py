"""Quantisation, the norms and gates fused with it, and writes to the paged caches. All are bound by memory."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from deepseek_v32.kernels.cache_write import gather_latents, write_index_cache, write_latent_cache
from deepseek_v32.kernels.hadamard import rotate_quantize
from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm_quantize, swiglu_quantize

from .harness import Case, Unit, rotations_for

HIDDEN, EXPERT, HEADS, INDEX = 7168, 2048, 64, 128
LATENT, ROPE, RECORD = 512, 64, 656


def _case(
    name: str, make: Callable[[], Callable[[], object]], size: int, must: str = "", aim: str = "", unit: Unit = "us"
) -> Case:
    """A case whose `make` allocates one set of inputs and returns the call with it."""
    calls = [make() for _ in range(rotations_for(size))]
    return Case(name, lambda i: calls[i](), len(calls), size, 0, must, aim, unit)


def _copy(rows: int, device: torch.device) -> Callable[[], object]:
    source = torch.randn(rows, HIDDEN, device=device, dtype=torch.bfloat16)
    return partial(torch.empty_like(source).copy_, source)


def _quantize(rows: int, device: torch.device) -> Callable[[], object]:
    return partial(quantize_blocks, torch.randn(rows, HIDDEN, device=device, dtype=torch.bfloat16))


def _norm(rows: int, adds: bool, device: torch.device) -> Callable[[], object]:
    x, residual = torch.randn(2, rows, HIDDEN, device=device, dtype=torch.bfloat16).unbind()
    weight = torch.ones(HIDDEN, device=device)
    return partial(rms_norm_quantize, x, weight, 1e-6, residual=residual if adds else None)


def _swiglu(rows: int, device: torch.device) -> Callable[[], object]:
    return partial(swiglu_quantize, torch.randn(rows, 2 * EXPERT, device=device, dtype=torch.bfloat16))


def _angles(rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.randn(rows, ROPE // 2, device=device)
    return angles.cos(), angles.sin()


def _rotate(rows: int, device: torch.device) -> Callable[[], object]:
    x = torch.randn(rows, HEADS, INDEX, device=device, dtype=torch.bfloat16)
    return partial(rotate_quantize, x, *_angles(rows, device))


def _cache(rows: int, record: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages for twice as many rows, and random slots."""
    pages = -(-2 * rows // 64)
    cache = torch.zeros(pages, 64, 1, record, dtype=torch.uint8, device=device)
    return cache, torch.randperm(pages * 64, device=device)[:rows]


def _write_latent(rows: int, device: torch.device) -> Callable[[], object]:
    kv = torch.randn(rows, LATENT + ROPE, device=device, dtype=torch.bfloat16)
    weight = torch.ones(LATENT, device=device)
    return partial(write_latent_cache, kv, weight, 1e-6, *_angles(rows, device), *_cache(rows, RECORD, device))


def _write_index(rows: int, device: torch.device) -> Callable[[], object]:
    keys = torch.randn(rows, INDEX, device=device, dtype=torch.bfloat16)
    return partial(write_index_cache, keys, *_angles(rows, device), *_cache(rows, INDEX + 4, device))


def _gather(rows: int, device: torch.device) -> Callable[[], object]:
    return partial(gather_latents, *_cache(rows, RECORD, device), LATENT, torch.bfloat16)


def cases(device: torch.device) -> Iterator[Case]:
    one_norm = HIDDEN * (2 + 2 + 1) + HIDDEN // 32
    for rows in (4096, 128, 1):
        size = rows * HIDDEN
        required = ("70", "90") if rows == 4096 else ("", "")
        yield _case(f"copy bf16 {rows}x{HIDDEN}", partial(_copy, rows, device), 4 * size, unit="% of copy")
        yield _case(
            f"quantise {rows}x{HIDDEN}", partial(_quantize, rows, device), 3 * size + size // 32, *required, "% of copy"
        )
        for adds, name in ((False, "RMSNorm, quantise"), (True, "add, RMSNorm, quantise")):
            norm = rows * (one_norm + adds * 4 * HIDDEN)
            yield _case(f"{name} {rows}x{HIDDEN}", partial(_norm, rows, adds, device), norm, unit="% of copy")
        yield _case(
            f"SwiGLU, quantise {rows}x{EXPERT}",
            partial(_swiglu, rows, device),
            rows * (5 * EXPERT + EXPERT // 32),
            unit="% of copy",
        )
        angles = rows * ROPE * 4
        yield _case(
            f"index queries {rows}x{HEADS}x{INDEX}",
            partial(_rotate, rows, device),
            rows * HEADS * (3 * INDEX + 4) + angles,
            unit="% of copy",
        )
        latent = rows * (2 * (LATENT + ROPE) + RECORD + 8)
        yield _case(
            f"write latent cache {rows}", partial(_write_latent, rows, device), latent + angles, unit="% of copy"
        )
        yield _case(f"gather latents {rows}", partial(_gather, rows, device), latent, unit="% of copy")
        index = rows * (3 * INDEX + 4 + 8) + angles
        yield _case(f"write index cache {rows}", partial(_write_index, rows, device), index, unit="% of copy")
