"""Grouped GEMMs whose weights lie in slots: several calls have the bits of one call with all experts' weights."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cuda.fp8_gemm import EXPERT_TILE, LARGE_TILES, PAIRED_TILE, Tile, multiply_into
from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.grouped_gemm import grouped_gemm, grouped_gemm_with_shared
from deepseek_v32.kernels.registry import choose_implementation
from deepseek_v32.kernels.types import Quantized
from support.small_kernels import multiply

FP8 = torch.float8_e4m3fn
UNTOUCHED = -7.0

CASES = {  # rows of each expert; N; K
    "one expert": ([3], 128, 128),
    "a row each": ([1] * 12, 256, 512),
    "tiles of 16": ([0, 8, 3, 0, 5, 1, 0, 9], 136, 1152),
    "tiles of 32": ([7, 0, 33, 12, 0, 1, 16, 31], 256, 384),
    "tiles of 64": ([65, 1, 0, 20, 40, 0, 2, 64], 128, 256),
    "tiles of 192": ([0, 97, 193, 33, 64, 1, 150, 0], 384, 384),
    "tiles of 128, in pairs": ([0, 300, 129, 257, 1, 500], 512, 256),
    "few of many experts": ([0] * 40 + [2] + [0] * 20 + [1, 4] + [0] * 30, 128, 128),
    "ragged dims": ([2, 5, 0, 1, 9], 7, 24),
}
COMPILED = ("tiles of 16", "tiles of 128, in pairs", "ragged dims")
KINDS = {  # dtype of the operands and of the result
    "fp32": (torch.float32, torch.float32),
    "bf16": (torch.bfloat16, torch.bfloat16),
    "bf16 to fp32": (torch.bfloat16, torch.float32),
    "fp8": (FP8, torch.bfloat16),
    "fp8 to fp32": (FP8, torch.float32),
}
CPU = torch.device("cpu")
IMPLEMENTATIONS: list[Any] = [("reference", CPU), ("invariant", CPU)]
if torch.cuda.is_available() and is_hopper(torch.device("cuda", torch.cuda.current_device())):
    GPU = torch.device("cuda", torch.cuda.current_device())
    IMPLEMENTATIONS += [pytest.param(name, GPU, marks=pytest.mark.gpu) for name in ("tile", "cuda", "invariant")]


class Weights(NamedTuple):
    values: torch.Tensor  # [E or S, N, K]
    scales: torch.Tensor | None

    def in_slots(self, slots: list[int], count: int) -> tuple["Weights", torch.Tensor]:
        """Return `count` slots, of which those that no expert has hold NaN, and the table of slots."""
        values = torch.full((count, *self.values.shape[1:]), math.nan, device=self.values.device).to(self.values.dtype)
        scales = None if self.scales is None else self.scales.new_full((count, *self.scales.shape[1:]), math.nan)
        for expert, slot in enumerate(slots):
            if slot >= 0:
                values[slot].copy_(self.values[expert])
                if scales is not None and self.scales is not None:
                    scales[slot] = self.scales[expert]
        return Weights(values, scales), torch.tensor(slots, dtype=torch.int32, device=values.device)


def random_values(shape: tuple[int, ...], seed: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers of wide exponents, so that another order of summation shows."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()
    return (numbers * 8).clamp(-448, 448).to(dtype).to(device)


def random_rows(rows: int, k: int, seed: int, dtype: torch.dtype, device: torch.device) -> Any:
    values = random_values((rows, k), seed, dtype, device)
    if dtype != FP8:
        return values
    scales = torch.rand(rows, -(-k // 128), generator=torch.Generator().manual_seed(seed)) + 0.5
    return Quantized(values, scales.to(device))


def random_weights(experts: int, n: int, k: int, dtype: torch.dtype, device: torch.device) -> Weights:
    values = random_values((experts, n, k), 1, dtype, device)
    if dtype != FP8:
        return Weights(values, None)
    scales = torch.rand(experts, -(-n // 128), -(-k // 128), generator=torch.Generator().manual_seed(1)) + 0.5
    return Weights(values, scales.to(device))


def launches(experts: int, count: int, rng: np.random.Generator) -> list[list[int]]:
    """Tables that compute every expert once, in any order, in any of `count` slots."""
    order = rng.permutation(experts)
    tables = []
    for first in range(0, experts, count):
        table = [-1] * experts
        for expert, slot in zip(order[first : first + count], rng.permutation(count), strict=False):
            table[expert] = int(slot)
        tables.append(table)
    return tables


def rows_of(table: list[int], counts: list[int], device: torch.device) -> torch.Tensor:
    """A mask of the rows of experts that have a slot."""
    return torch.tensor(table, device=device).ge(0).repeat_interleave(torch.tensor(counts, device=device))


def offsets_of(counts: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32, device=device)


def slot_counts(experts: int) -> list[int]:
    return sorted({1 if experts < 9 else 4, (experts + 2) // 3, experts + 3})


def skip_unless_supported(operation: str, name: str, device: torch.device, dtype: torch.dtype, label: str) -> None:
    """Skip what no kernel supports, and most shapes that TileLang compiles kernels for."""
    if device.type == "cuda" and (name == "tile" or dtype != FP8) and label not in COMPILED:
        pytest.skip("compiles for seconds")
    try:
        choose_implementation(operation, device, dtype, (name,))
    except ValueError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "device"), IMPLEMENTATIONS)
@pytest.mark.parametrize(("dtype", "out_dtype"), KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("label", CASES)
def test_calls_with_some_experts_fill_one_result(
    name: str, device: torch.device, dtype: torch.dtype, out_dtype: torch.dtype, label: str
) -> None:
    skip_unless_supported("grouped_gemm", name, device, dtype, label)
    counts, n, k = CASES[label]
    rng, experts, rows = np.random.default_rng(0), len(counts), sum(counts)
    weights, offsets = random_weights(experts, n, k, dtype, device), offsets_of(counts, device)
    tokens = torch.from_numpy(rng.integers(0, 11, rows).astype(np.int32)).to(device)
    for a, ids, expected_m in (
        (random_rows(rows, k, 2, dtype, device), None, None),
        (random_rows(11, k, 3, dtype, device), tokens, 1 + rows // 2),
    ):
        options: dict[str, Any] = {"sorted_token_ids": ids, "expected_m": expected_m, "backend": (name,)}
        whole = grouped_gemm(a, weights.values, offsets, weights.scales, out_dtype, **options)
        for count in slot_counts(experts):
            out = torch.full_like(whole, UNTOUCHED)
            filled = torch.zeros(rows, dtype=torch.bool, device=device)
            for table in launches(experts, count, rng):
                some, slots = weights.in_slots(table, count)
                options |= {"slots": slots, "out": out}
                assert grouped_gemm(a, some.values, offsets, some.scales, out_dtype, **options) is out
                filled |= rows_of(table, counts, device)
                assert torch.equal(out, torch.where(filled[:, None], whole, UNTOUCHED)), (count, table)
            assert filled.all()


@pytest.mark.parametrize(("name", "device"), IMPLEMENTATIONS)
@pytest.mark.parametrize("tokens", [1, 16, 17])
@pytest.mark.parametrize("label", [label for label in CASES if label != "few of many experts"])
def test_the_shared_expert_goes_along_with_every_call(name: str, device: torch.device, tokens: int, label: str) -> None:
    skip_unless_supported("grouped_gemm_with_shared", name, device, FP8, label)
    counts, n, k = CASES[label]
    rng, experts, rows = np.random.default_rng(0), len(counts), sum(counts)
    weights, offsets = random_weights(experts, n, k, FP8, device), offsets_of(counts, device)
    dense = random_rows(tokens, k, 4, FP8, device)
    own = random_weights(1, n, k, FP8, device)
    assert own.scales is not None and weights.scales is not None
    shared = Quantized(own.values[0], own.scales[0])
    ids = torch.from_numpy(rng.integers(0, tokens, rows).astype(np.int32)).to(device)
    for a, gathered in ((random_rows(rows, k, 2, FP8, device), None), (dense, ids)):
        options: dict[str, Any] = {"sorted_token_ids": gathered, "backend": (name,)}
        whole = grouped_gemm_with_shared(a, weights.values, offsets, weights.scales, dense, shared, **options)
        for count in slot_counts(experts):
            out = torch.full_like(whole, UNTOUCHED)
            filled = torch.cat([torch.ones(tokens, device=device), torch.zeros(rows, device=device)]).bool()
            for table in launches(experts, count, rng):
                some, slots = weights.in_slots(table, count)
                assert some.scales is not None
                arguments = a, some.values, offsets, some.scales, dense, shared
                out[:tokens] = UNTOUCHED
                assert grouped_gemm_with_shared(*arguments, slots=slots, out=out, **options) is out
                filled[tokens:] |= rows_of(table, counts, device)
                assert torch.equal(out, torch.where(filled[:, None], whole, UNTOUCHED)), (count, table)
            assert filled.all()


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [0, 3])
@pytest.mark.parametrize(
    "tile", [8, 16, 32, 64, 128, *LARGE_TILES, PAIRED_TILE, EXPERT_TILE], ids=lambda tile: str(tile).replace(" ", "")
)
def test_every_tile_finds_its_slot(tile: Tile | int, splits: int) -> None:
    """Eighty uneven experts, whose units a pair of multiprocessors claims in any order, in three calls."""
    device, rng, experts, n, k = torch.device("cuda"), np.random.default_rng(0), 80, 640, 768
    counts = rng.integers(0, 3 * (tile if isinstance(tile, int) else tile.rows) // 2, experts).tolist()
    weights, offsets = random_weights(experts, n, k, FP8, device), offsets_of(counts, device)
    assert weights.scales is not None
    a = random_rows(sum(counts), k, 2, FP8, device)
    whole = multiply(a, weights.values, weights.scales, tile, offsets, splits)
    for count in (27, 80, 100):
        out = torch.full_like(whole, UNTOUCHED)
        for table in [[-1] * experts, *launches(experts, count, rng)]:
            some, slots = weights.in_slots(table, count)
            assert some.scales is not None
            multiply_into(out, *a, some.values, some.scales, offsets, tile, splits, slots=slots)
        assert torch.equal(out, whole), count
