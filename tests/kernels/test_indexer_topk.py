"""Scores and selection together: the positions that a sort of known scores gives, and on a GPU in one pass the bits of two.

Where queries and keys are all alike, a key's score is its scale times one number, so that a test can choose the scores of a row.
"""

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from deepseek_v32.kernels import indexer_topk as public
from deepseek_v32.kernels.cuda.indexer_topk import (
    BLOCK,
    LEAST_KEYS,
    MAX_TOPK,
    SCRATCH,
    STRIDE,
    bytes_of_row,
    first_attempt,
    in_one_pass,
    multiprocessors,
    prefers_one_pass,
    rows_at_a_time,
)
from deepseek_v32.kernels.indexer_logits import indexer_logits
from deepseek_v32.kernels.indexer_topk import indexer_topk, takes_one_pass
from deepseek_v32.kernels.select_topk import select_topk
from support.backends import Backend
from support.score_rows import SHAPES, expected_positions

FP8 = torch.float8_e4m3fn
Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def causal(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    ends = torch.arange(keys - rows + 1, keys + 1, dtype=torch.int32)
    return torch.zeros_like(ends), ends


def random(rows: int, keys: int, heads: int = 64) -> Problem:
    generator = torch.Generator().manual_seed(rows + keys)
    # As the quantiser's, whose largest of 128 is 448. Very small queries have wide bounds.
    values = (torch.randn(rows * heads + keys, 128, generator=generator) * 160).clamp_(-448, 448).to(FP8)
    q, k = values[: rows * heads].view(rows, heads, 128), values[rows * heads :]
    weights, scales = torch.randn(rows, heads, generator=generator), torch.rand(keys, generator=generator)
    return q, k, weights, *causal(rows, keys), scales


def with_scores(rows: int, scores: torch.Tensor) -> Problem:
    """Row t scores key s with scores[s] times 128 * 64 * (t + 1): powers of two and small numbers, so that no score is rounded."""
    q = torch.ones(rows, 64, 128).to(FP8)
    weights = (torch.arange(rows) % 3 + 1.0)[:, None].expand(rows, 64).contiguous()
    return q, torch.ones(len(scores), 128).to(FP8), weights, *causal(rows, len(scores)), scores.float()


def run(backend: Backend, problem: Sequence[torch.Tensor], topk: int) -> torch.Tensor:
    moved = [tensor.to(backend.device) for tensor in problem]
    return indexer_topk(*moved, topk, backend=backend.name).cpu()


@pytest.mark.parametrize("topk", [1, 64, 300])
@pytest.mark.parametrize(
    "shape", ["ascending", "descending", "all equal", "few above many ties at zero", "mostly -inf"]
)
def test_known_scores(backend: Backend, shape: str, topk: int) -> None:
    scores = SHAPES[shape](700) / 1024
    problem = with_scores(9, scores)
    result = run(backend, problem, topk)
    assert result.dtype == torch.int32 and result.shape == (9, topk)
    for row, end in zip(result.tolist(), problem[4].tolist(), strict=True):
        expected = expected_positions(scores[:end], topk)
        assert sorted(row[: len(expected)]) == expected and row[len(expected) :] == [-1] * (topk - len(expected))


def test_a_few_rows_at_a_time_give_the_same(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random(23, 500)
    whole = run(backend, problem, 40)
    monkeypatch.setattr(public, "LOGITS_BYTES", 4 * 500 * 5)
    assert public.rows_at_a_time(500) == 5 and public.rows_at_a_time(10**9) == 1
    assert torch.equal(run(backend, problem, 40), whole)


def test_ranges_and_empty_rows(backend: Backend) -> None:
    """Positions are relative to a row's start; a row without keys has none."""
    q, k, weights, _, _, scales = with_scores(4, torch.arange(100.0))
    starts, ends = (torch.tensor(values, dtype=torch.int32) for values in ([0, 40, 60, 99], [100, 45, 60, 120]))
    result = run(backend, (q, k, weights, starts, ends, scales), 6)
    assert [sorted(row) for row in result.tolist()] == [
        [94, 95, 96, 97, 98, 99], [-1, 0, 1, 2, 3, 4], [-1] * 6, [-1] * 5 + [0],
    ]  # fmt: skip


def test_nothing_to_select_from(backend: Backend) -> None:
    q, k, weights, starts, ends, scales = random(3, 5)
    assert run(backend, (q[:0], k, weights[:0], starts[:0], ends[:0], scales), 4).shape == (0, 4)
    assert run(backend, (q, k[:0], weights, starts, ends, scales[:0]), 2).tolist() == [[-1, -1]] * 3


def test_misuse_names_the_argument() -> None:
    problem = random(3, 5)
    with pytest.raises(ValueError, match="topk is 0; expected at least 1"):
        indexer_topk(*problem, 0)
    with pytest.raises(ValueError, match=r"ends has shape \[2\]; expected \[3\]"):
        indexer_topk(*problem[:4], problem[4][:2], problem[5], 4)


def test_when_one_pass_is_taken() -> None:
    many = (BLOCK * 132, 64, LEAST_KEYS, MAX_TOPK, 132)
    assert prefers_one_pass(*many) and prefers_one_pass(4096, 33, 1 << 20, 1, 132)
    for place, value in (
        (0, BLOCK * 132 - 1),
        (1, 32),
        (1, 65),
        (2, LEAST_KEYS - 1),
        (2, (1 << 20) + 1),
        (3, MAX_TOPK + 1),
    ):
        assert not prefers_one_pass(*many[:place], value, *many[place + 1 :])


@pytest.mark.parametrize(("rows", "keys"), [(1, 64), (6, 4096), (4096, 131072), (4096, 1 << 20), (100_000, 65536)])
def test_scratch_of_one_pass(rows: int, keys: int) -> None:
    """Lists and scores of the sample fit in SCRATCH, in parts that differ by less than a block."""
    step = rows_at_a_time(rows, keys)
    assert step % BLOCK == 0 and step * bytes_of_row(keys) <= SCRATCH
    parts = -(-rows // step)
    assert parts * (step - BLOCK) < rows


def best_in_the_sample(size: int) -> torch.Tensor:
    """Half of the sampled keys are better than all others: the threshold is too high."""
    stretch = torch.arange(size // STRIDE)
    scores = torch.rand(size, generator=torch.Generator().manual_seed(1))
    scores[stretch * STRIDE + ((stretch * 2654435761 % 2**32) >> 16) % STRIDE] += (stretch % 2).float()
    return scores


def small_queries(rows: int, keys: int) -> Problem:
    """Of magnitude 1 to 8, so that many lose digits when they are divided by 64."""
    q, *rest = random(rows, keys)
    size = 2.0 ** (torch.arange(rows) % 4)
    return (q.float() / 160 * size[:, None, None]).to(FP8), *rest


def aligned(rows: int, keys: int) -> Problem:
    """Some products of queries and keys are as large as they can be."""
    q, k, *rest = random(rows, keys)
    q.view(torch.uint8)[:, ::9] = k.view(torch.uint8)[::701] = 0x7E
    q.view(torch.uint8)[:, 1::9] = 0xFE
    return q, k, *rest


ON_A_GPU: dict[str, Callable[[], Problem]] = {
    **{f"scores {name}": lambda make=make: with_scores(50, make(40_000)) for name, make in SHAPES.items()},
    "scores best in the sample": lambda: with_scores(50, best_in_the_sample(400_000)),
    "one row": lambda: random(1, 40_000),
    "seven rows of 128K": lambda: random(7, 131_072),
    "fewer keys than are selected": lambda: random(300, 1500),
    "a causal chunk from the start": lambda: random(2500, 2500),
    "40 heads": lambda: random(500, 20_000, 40),
    "4096 rows": lambda: random(4096, 9000),
    "2^20 keys": lambda: random(13, 1 << 20),
    "small queries": lambda: small_queries(300, 20_000),
    "products that do not fit into fp16": lambda: aligned(300, 20_000),
}


@pytest.mark.gpu
def test_the_operation_takes_one_pass_for_long_contexts() -> None:
    problem = [tensor.cuda() for tensor in random(BLOCK * multiprocessors(torch.device("cuda", 0)), LEAST_KEYS)]
    q, k = problem[:2]
    assert takes_one_pass(q, k, 2048, "auto") and takes_one_pass(q, k, 2048, ("cuda", "auto"))
    assert not takes_one_pass(q, k, 2048, "reference") and not takes_one_pass(q[:5], k, 2048, "auto")
    logits = indexer_logits(*problem, backend="cuda")
    assert torch.equal(indexer_topk(*problem, 2048), select_topk(logits, problem[3], problem[4], 2048, backend="cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("make", ON_A_GPU.values(), ids=ON_A_GPU.keys())
@pytest.mark.parametrize("topk", [2048, 2000, 64])
def test_one_pass_selects_what_two_select(make: Callable[[], Problem], topk: int) -> None:
    problem = [tensor.cuda() for tensor in make()]
    logits = indexer_logits(*problem, backend="cuda")
    expected = select_topk(logits, problem[3], problem[4], topk, backend="cuda")
    assert torch.equal(in_one_pass(*problem, topk), expected)
    result, failed = first_attempt(*problem, topk)
    assert torch.equal(result[failed == 0], expected[failed == 0])


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "keys"), [(900, 131_072), (1000, 30_000), (900, 3000)])
@pytest.mark.parametrize("signs", ["both", "positive"])
def test_the_first_attempt_succeeds(rows: int, keys: int, signs: str) -> None:
    """With independent random keys, for nearly every query: one in ten thousand has a misleading sample."""
    problem = [tensor.cuda() for tensor in random(rows, keys)]
    if signs == "positive":
        problem[2].abs_()
    assert int(first_attempt(*problem, 2048)[1].count_nonzero()) <= 2


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e25, math.inf, math.nan])
def test_weights_of_any_size(value: float) -> None:
    """Bounds of scores need weights of ordinary size: queries with other ones are computed in two passes."""
    problem = [tensor.cuda() for tensor in random(100, 30_000)]
    problem[2][::2, 3] = value
    problem[2][1::4] *= -1
    logits = indexer_logits(*problem, backend="cuda")
    assert torch.equal(in_one_pass(*problem, 2048), select_topk(logits, problem[3], problem[4], 2048, backend="cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-42, math.inf, math.nan])
def test_key_scales_of_any_size(value: float) -> None:
    problem = [tensor.cuda() for tensor in random(100, 30_000)]
    problem[5][::7] *= value
    logits = indexer_logits(*problem, backend="cuda")
    assert torch.equal(in_one_pass(*problem, 2048), select_topk(logits, problem[3], problem[4], 2048, backend="cuda"))


@pytest.mark.gpu
def test_one_pass_over_ragged_rows() -> None:
    """Any ranges, empty ones and starts below zero among them; replayed in a CUDA graph with other values."""
    rows, keys = 900, 60_000
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, keys // 2, (rows,), generator=generator, dtype=torch.int32)
    lengths = torch.randint(-3, keys // 2, (rows,), generator=generator, dtype=torch.int32)
    lengths[::7] %= 2100
    starts[::11] = -5
    q, k, weights, _, _, scales = random(rows, keys)
    problem = [tensor.cuda() for tensor in (q, k, weights, starts, (starts + lengths).clamp_max(keys + 10), scales)]
    first_attempt(*problem, 2048)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result, failed = first_attempt(*problem, 2048)
    for _ in range(2):
        problem[2].copy_(torch.randn(rows, 64))
        graph.replay()
        logits = indexer_logits(*problem, backend="cuda")
        expected = select_topk(logits, problem[3], problem[4], 2048, backend="cuda")
        assert failed.count_nonzero() <= 2 and torch.equal(result[failed == 0], expected[failed == 0])


@pytest.mark.gpu
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_candidates_of_poisoned_scratch_are_not_seen(value: float) -> None:
    """Memory that the allocator hands out again may hold anything."""
    problem = [tensor.cuda() for tensor in random(200, 30_000)]
    expected = in_one_pass(*problem, 2048)
    torch.full((100 << 20,), value, device="cuda")  # freed at once, and reused as scratch
    assert torch.equal(in_one_pass(*problem, 2048), expected)
