"""The top-k selector against a Python sort: exact, lowest position of equals first, NaN and -inf never."""

import math
import struct

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepseek_v32.kernels.select_topk import positions_to_slots, select_topk
from support.backends import Backend

INF, NAN = math.inf, math.nan


def chosen(row: list[float], k: int) -> set[int]:
    """Positions of the k largest. Python's sort is stable and has -0.0 == 0.0, so equals stay in order of position."""
    candidates = [position for position, value in enumerate(row) if not math.isnan(value) and value != -INF]
    return set(sorted(candidates, key=lambda position: -row[position])[:k])


def check(result: torch.Tensor, rows: list[list[float]], k: int) -> None:
    """Each row: the expected set without repeats, then -1 to the end."""
    assert result.dtype == torch.int32 and result.shape == (len(rows), k)
    for got, row in zip(result.tolist(), rows, strict=True):
        expected = chosen(row, k)
        assert got[len(expected) :] == [-1] * (k - len(expected))
        assert len(set(got[: len(expected)])) == len(expected) and set(got[: len(expected)]) == expected


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def run(backend: Backend, row: list[float], k: int) -> torch.Tensor:
    return backend.run(select_topk, torch.tensor([row], dtype=torch.float32), int32(0), int32(len(row)), k)


CASES = {
    "k is the row": ([1.0, 3.0, 2.0], 3),
    "k beyond the row": ([1.0, 3.0, 2.0], 8),
    "k is one": ([1.0, 3.0, 2.0], 1),
    "all equal": ([5.0] * 9, 4),
    "all zero, as ReLU leaves them": ([0.0] * 70, 64),
    "zeros of both signs, minus first": ([-0.0, 0.0, -0.0, 0.0], 2),
    "zeros of both signs, plus first": ([0.0, -0.0, 0.0, -0.0], 3),
    "minus zero before a later plus zero": ([-1.0, -0.0, 0.0], 1),
    "ties across the cut": ([1.0, 2.0, 1.0, 2.0, 1.0], 3),
    "negative only": ([-3.0, -1.0, -2.0], 2),
    "only NaN": ([NAN] * 5, 3),
    "NaN of both signs among numbers": ([NAN, 1.0, -NAN, -1.0, NAN], 3),
    "only -inf": ([-INF] * 5, 3),
    "-inf below the largest negative": ([-INF, -3.4e38, NAN, -INF, 1.0], 4),
    "+inf is a number like others": ([1.0, INF, INF, -1.0], 2),
    "denormals are not zero": ([0.0, 2.0**-149, -(2.0**-149), -0.0], 2),
    "equal in their upper 16 bits": ([1.0 + i * 2.0**-23 for i in (3, 9, 1, 7, 5, 8, 0, 2)], 3),
    "neighbours around a tie": ([1.0, 1.0 + 2.0**-23, 1.0, 1.0 - 2.0**-24, 1.0], 2),
}


@pytest.mark.parametrize(("row", "k"), CASES.values(), ids=CASES.keys())
def test_case(backend: Backend, row: list[float], k: int) -> None:
    check(run(backend, row, k), [row], k)


FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 2.0**-23, 2.0, INF, -INF, NAN, 2.0**-149])
ANY = st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0])
COMMON = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # the fixture holds no state


@given(data=st.data(), values=st.sampled_from([FEW, ANY, FEW | ANY]), k=st.integers(1, 40))
@settings(max_examples=150, deadline=None, suppress_health_check=COMMON)
def test_any_values_any_ranges(backend: Backend, data: st.DataObject, values: st.SearchStrategy, k: int) -> None:
    """Every fp32 bit pattern, and few values for many ties; each row has its own range of the columns."""
    width = data.draw(st.integers(1, 40), label="width")
    logits = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=4))
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, width)] * 2))) for _ in logits]
    starts, ends = (int32(*column) for column in zip(*bounds, strict=True))
    result = backend.run(select_topk, torch.tensor(logits, dtype=torch.float32), starts, ends, k)
    check(result, [row[start:end] for row, (start, end) in zip(logits, bounds, strict=True)], k)


LONG = {  # S, k: around the released k of 2048 and around powers of two, where radix passes change
    "2047 of 2048": (2048, 2047),
    "k one below S": (2049, 2048),
    "k equal to S": (2048, 2048),
    "k above S": (2047, 2048),
    "one of a long row": (8193, 1),
    "released k": (5000, 2048),
}


@pytest.mark.parametrize("levels", [3, 100, 0], ids=["3 levels", "100 levels", "distinct"])
@pytest.mark.parametrize(("width", "k"), LONG.values(), ids=LONG.keys())
def test_long_rows(backend: Backend, width: int, k: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(width + levels)
    logits = torch.randn(3, width, generator=generator)
    if levels:
        logits = (logits * levels).round().clamp(-levels, levels) / levels
    starts, ends = int32(0, 5, 7), int32(width, width, width - 3)
    result = backend.run(select_topk, logits, starts, ends, k)
    check(result, [logits[i, starts[i] : ends[i]].tolist() for i in range(3)], k)
    assert torch.equal(result, backend.run(select_topk, logits, starts, ends, k))


def test_columns_outside_the_range_are_not_chosen(backend: Backend) -> None:
    """Outside [start, end) a buffer holds anything, here +inf and NaN; positions count from start."""
    logits = torch.full((3, 100), INF)
    logits[:, ::2] = NAN
    logits[:, 40:60] = torch.arange(20.0)
    result = backend.run(select_topk, logits, int32(40, 45, 60), int32(60, 50, 60), 4)
    assert [sorted(row) for row in result.tolist()] == [[16, 17, 18, 19], [1, 2, 3, 4], [-1] * 4]


def test_empty(backend: Backend) -> None:
    assert backend.run(select_topk, torch.empty(0, 9), int32(), int32(), 4).shape == (0, 4)
    assert backend.run(select_topk, torch.empty(2, 0), int32(0, 0), int32(0, 0), 3).tolist() == [[-1] * 3] * 2


def test_a_wider_buffer_is_taken_by_its_stride(backend: Backend) -> None:
    wide = torch.full((2, 64), INF)
    wide[:, :10] = torch.arange(10.0)
    result = backend.run(select_topk, wide[:, :10], int32(0, 0), int32(10, 10), 2)
    assert [sorted(row) for row in result.tolist()] == [[8, 9]] * 2


def test_input_is_left_alone(backend: Backend) -> None:
    logits = torch.tensor([[3.0, -0.0, -INF, 1.0]])
    before = logits.clone()
    backend.run(select_topk, logits, int32(1), int32(4), 2)
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))


@pytest.mark.parametrize("page", [1, 2, 64, 69], ids=lambda page: f"page {page}")
def test_positions_to_slots(page: int) -> None:
    table = int32(7, 0, 3, 4, 9, 1).reshape(2, 3)
    positions = [[-1, 0, page - 1, 3 * page - 1], [page, -1, 2 * page, -1]]
    expected = [
        [-1 if p < 0 else int(table[row, p // page]) * page + p % page for p in columns]
        for row, columns in enumerate(positions)
    ]
    result = positions_to_slots(torch.tensor(positions, dtype=torch.int32), table, page)
    assert result.dtype == torch.int32 and result.tolist() == expected


MISUSE = {
    "bf16 logits": ((torch.ones(1, 4).bfloat16(), int32(0), int32(4), 2), "logits has dtype torch.bfloat16"),
    "one axis": ((torch.ones(4), int32(0), int32(4), 2), r"logits has shape \[4\], expected \[\*, \*\]"),
    "int64 starts": ((torch.ones(1, 4), int32(0).long(), int32(4), 2), "starts has dtype torch.int64"),
    "an end too many": ((torch.ones(1, 4), int32(0), int32(4, 4), 2), r"ends has shape \[2\], expected \[1\]"),
    "ends elsewhere": ((torch.ones(1, 4), int32(0), int32(4).to("meta"), 2), "ends is on meta, expected cpu"),
    "k of zero": ((torch.ones(1, 4), int32(0), int32(4), 0), "k is 0, expected at least 1"),
    "columns strided": ((torch.ones(4, 2).T, int32(0, 0), int32(4, 4), 2), "logits has stride 2 .* expected 1"),
}


@pytest.mark.parametrize(("arguments", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_topk(*arguments)
