"""The top-k selector against a Python sort: exact, of equal values the lowest position first, never NaN or -inf."""

import math
import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepseek_v32.kernels.select_topk import positions_to_slots, select_topk, select_topk_slots
from support.backends import Backend
from support.score_rows import SHAPES, expected_positions, normal

INF, NAN = math.inf, math.nan


def best(row: list[float], k: int) -> set[int]:
    """Positions of the k largest. Python's sort is stable and has -0.0 == 0.0, so equal values stay in the order of positions."""
    candidates = [position for position, value in enumerate(row) if not math.isnan(value) and value != -INF]
    return set(sorted(candidates, key=lambda position: -row[position])[:k])


def check(result: torch.Tensor, rows: list[list[float]], k: int) -> None:
    """Each row holds the expected positions, ascending, then -1 to its end."""
    assert result.dtype == torch.int32 and result.shape == (len(rows), k)
    for got, row in zip(result.tolist(), rows, strict=True):
        expected = best(row, k)
        assert got[len(expected) :] == [-1] * (k - len(expected))
        assert got[: len(expected)] == sorted(expected)


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def run(backend: Backend, row: list[float], k: int) -> torch.Tensor:
    return backend.run(select_topk, torch.tensor([row], dtype=torch.float32), int32(0), int32(len(row)), k)


@pytest.mark.parametrize("columns", [40, 700, 9_000, 70_000])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_record_is_written_beside_the_slots(backend: Backend, columns: int, rows: int) -> None:
    """Into rows that lie apart, as one layer's part of a step's record; what lies between them stays."""
    k, generator = 64, torch.Generator().manual_seed(columns)
    logits = torch.relu(torch.randn(rows, columns, generator=generator))
    logits[:2, 1], logits[1:3, 0] = NAN, -INF  # short rows with them are not selected whole, and others are
    ends = torch.randint(columns // 20, columns + 1, (rows,), generator=generator, dtype=torch.int32)
    ends[0] = columns
    table = torch.randperm(rows * -(-columns // 64), generator=generator).int().view(rows, -1)
    whole = torch.full((rows, 3, 2, k), 77, dtype=torch.int32)
    arguments = (logits, None, ends, k, table, 64)
    plain = backend.run(select_topk_slots, *arguments)
    record = whole.to(backend.device)
    moved = (logits.to(backend.device), None, ends.to(backend.device), k, table.to(backend.device), 64)
    slots = select_topk_slots(*moved, record[:, 1], backend=backend.name).cpu()
    assert (slots == plain).all()
    found = record.cpu()
    assert (found[:, ::2] == 77).all()
    positions, scores = found[:, 1, 0], found[:, 1, 1].view(torch.float32)
    for row in range(rows):
        expected = sorted(best(logits[row, : ends[row]].tolist(), k))
        assert positions[row].tolist() == expected + [-1] * (k - len(expected))
        assert scores[row, : len(expected)].tolist() == logits[row, expected].tolist()
    assert (positions_to_slots(positions, table, 64) == slots).all()


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
    """All fp32 bit patterns, or few values for many ties. Each row has its own range of columns."""
    width = data.draw(st.integers(1, 40), label="width")
    logits = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=4))
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, width)] * 2))) for _ in logits]
    starts, ends = (int32(*column) for column in zip(*bounds, strict=True))
    result = backend.run(select_topk, torch.tensor(logits, dtype=torch.float32), starts, ends, k)
    check(result, [row[start:end] for row, (start, end) in zip(logits, bounds, strict=True)], k)


LONG = {  # S, k: around the released k of 2048, and around powers of two, where the radix passes change
    "2047 of 2048": (2048, 2047),
    "k one below S": (2049, 2048),
    "k equal to S": (2048, 2048),
    "k above S": (2047, 2048),
    "one of a long row": (8193, 1),
    "released k": (5000, 2048),
    "more than the released k": (8000, 5000),
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


def check_long(result: torch.Tensor, rows: list[torch.Tensor], k: int) -> None:
    for got, row in zip(result.tolist(), rows, strict=True):
        expected = expected_positions(row, k)
        assert got[: len(expected)] == expected
        assert got[len(expected) :] == [-1] * (k - len(expected))


@pytest.mark.parametrize("width", [4096, 8192, 16384, 32768, 131072, 163840, 200_001])
@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES.keys())
def test_distributions(backend: Backend, make: Callable[[int], torch.Tensor], width: int) -> None:
    """Rows up to and beyond the longest context of the released model, with different values. The second row has a range."""
    row = make(width)
    logits = torch.stack((row, row.flip(0)))
    starts, ends = int32(0, 5), int32(width, width - 3)
    for k in (2048, 64):
        result = backend.run(select_topk, logits, starts, ends, k)
        check_long(result, [logits[i, starts[i] : ends[i]] for i in range(2)], k)
    assert torch.equal(result, backend.run(select_topk, logits, starts, ends, k))


@pytest.mark.parametrize("rows", [3, 70, 150])  # a GPU gives several CTAs to each of few rows, but not of many
def test_ragged_rows(backend: Backend, rows: int) -> None:
    """All lengths and alignments, in a buffer whose other values would be selected."""
    generator = torch.Generator().manual_seed(rows)
    logits = torch.full((rows, 9001), INF)
    starts = torch.randint(0, 64, (rows,), generator=generator, dtype=torch.int32)
    lengths = (torch.linspace(0, 1, rows) * (9001 - 64)).int()
    ends = starts + lengths
    for i in range(rows):
        logits[i, starts[i] : ends[i]] = normal(int(lengths[i]), i)
    result = backend.run(select_topk, logits, starts, ends, 100)
    check_long(result, [logits[i, starts[i] : ends[i]] for i in range(rows)], 100)


@pytest.mark.parametrize("rows", [1, 20, 150])
@pytest.mark.parametrize("k", [2048, 300, 5000, 10_000])
def test_rows_much_shorter_than_their_buffer(backend: Backend, rows: int, k: int) -> None:
    """As a captured decode step gives them: a buffer for the longest context, whose other values would be selected."""
    generator = torch.Generator().manual_seed(rows)
    width = 40_000
    logits = torch.full((rows, width), INF)
    lengths = [8192, 8193, 1, 2048, 0, 8189, 300, 8190, 12_000]
    starts = torch.randint(0, 9, (rows,), generator=generator, dtype=torch.int32)
    rest = torch.randint(1, 9000, (rows,), generator=generator).tolist()
    ends = starts + int32(*(lengths + rest)[:rows])
    for i in range(rows):
        values = torch.relu(torch.randn(int(ends[i] - starts[i]), generator=generator))
        values[-1:] = NAN if i % 5 == 4 else 0.5
        logits[i, starts[i] : ends[i]] = values if i % 3 else values.round()
    result = backend.run(select_topk, logits, starts, ends, k)
    check_long(result, [logits[i, starts[i] : ends[i]] for i in range(rows)], k)


def test_a_long_row_among_many(backend: Backend) -> None:
    """As above, with rows that need the radix select over the row: one CTA per row, and more equal values than fit."""
    logits = torch.randn(150, 20_000, generator=torch.Generator().manual_seed(5))
    logits[::3] = logits[::3].round()
    logits[1::3] = 0.5
    result = backend.run(select_topk, logits, int32(*[0] * 150), int32(*[20_000] * 150), 2048)
    check_long(result, list(logits), 2048)


def sampled(size: int) -> torch.Tensor:
    """The positions that the compiled kernels sample: one in each of equal stretches of a row."""
    samples = max(1024, 1 << (size // 64 - 1).bit_length())
    index = torch.arange(samples)
    jitter = (index * 2654435761 % 2**32) >> 16
    return (index * size) // samples + ((jitter * (size // samples)) >> 16)


@pytest.mark.parametrize(("k", "at_samples"), [(2048, 9.0), (2048, -9.0), (5000, 9.0), (5000, 0.0), (3000, 2.0)])
@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("rows", [1, 140])
def test_rows_that_deceive_a_sample(backend: Backend, rows: int, k: int, at_samples: float, distinct: bool) -> None:
    """The result is exact, also if the sample is misleading."""
    width = 131072 if rows == 1 else 20_000
    logits = torch.randn(rows, width, generator=torch.Generator().manual_seed(k))
    samples = sampled(width)
    logits[:, samples] = at_samples + (normal(len(samples)) / 8 if distinct else 0)
    result = backend.run(select_topk, logits, int32(*[0] * rows), int32(*[width] * rows), k)
    check_long(result, list(logits), k)


def test_columns_outside_the_range_are_not_chosen(backend: Backend) -> None:
    """Outside [start, end) the buffer holds +inf and NaN. Positions are relative to start."""
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


@pytest.mark.parametrize("width", [300, 20_000], ids=["all fit", "long"])
@pytest.mark.parametrize("page", [1, 64])
def test_slots(backend: Backend, page: int, width: int) -> None:
    """The slots of the selected positions, by the pages of each row. The block table is a slice of a wider one."""
    generator = torch.Generator().manual_seed(width)
    logits = torch.randn(3, width, generator=generator)
    lengths = int32(0, 200, width)
    pages = -(-width // page)
    table = torch.randperm(3 * pages + 5, generator=generator)[: 3 * pages].int().reshape(3, pages)
    wide = torch.full((3, pages + 2), 1 << 20, dtype=torch.int32)
    wide[:, :pages] = table
    result = backend.run(select_topk_slots, logits, int32(0, 0, 0), lengths, 256, wide[:, :pages], page)
    assert result.dtype == torch.int32 and result.shape == (3, 256)
    for i, row in enumerate(result.tolist()):
        positions = expected_positions(logits[i, : lengths[i]], 256)
        assert sorted(row[: len(positions)]) == sorted(int(table[i, p // page]) * page + p % page for p in positions)
        assert row[len(positions) :] == [-1] * (256 - len(positions))


def test_slots_of_nothing(backend: Backend) -> None:
    table = torch.empty(2, 0, dtype=torch.int32)
    result = backend.run(select_topk_slots, torch.empty(2, 0), int32(0, 0), int32(0, 0), 3, table, 64)
    assert result.tolist() == [[-1] * 3] * 2


MISUSE = {
    "bf16 logits": ((torch.ones(1, 4).bfloat16(), int32(0), int32(4), 2), "logits has dtype torch.bfloat16"),
    "one axis": ((torch.ones(4), int32(0), int32(4), 2), r"logits has shape \[4\]; expected \[\*, \*\]"),
    "int64 starts": ((torch.ones(1, 4), int32(0).long(), int32(4), 2), "starts has dtype torch.int64"),
    "an end too many": ((torch.ones(1, 4), int32(0), int32(4, 4), 2), r"ends has shape \[2\]; expected \[1\]"),
    "ends elsewhere": ((torch.ones(1, 4), int32(0), int32(4).to("meta"), 2), "ends is on meta; expected cpu"),
    "k of zero": ((torch.ones(1, 4), int32(0), int32(4), 0), "k is 0; expected at least 1"),
    "columns strided": ((torch.ones(4, 2).T, int32(0, 0), int32(4, 4), 2), "logits has stride 2 .* expected 1"),
}


@pytest.mark.parametrize(("arguments", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_topk(*arguments)


def test_slots_need_a_table_of_the_rows() -> None:
    arguments = torch.ones(2, 4), int32(0, 0), int32(4, 4), 2
    with pytest.raises(ValueError, match=r"block_table has shape \[1, 3\]; expected \[2, \*\]"):
        select_topk_slots(*arguments, torch.zeros(1, 3, dtype=torch.int32), 64)
    with pytest.raises(ValueError, match="page_size is 0; expected at least 1"):
        select_topk_slots(*arguments, torch.zeros(2, 3, dtype=torch.int32), 0)
