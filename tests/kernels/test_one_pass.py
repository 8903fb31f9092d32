"""Scores and selection in one pass: when it is taken, its scratch, and on a GPU the bits of two passes."""

import math
import re
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch

from deepseek_v32.kernels.build import SOURCES, load
from deepseek_v32.kernels.cuda.indexer_topk import (
    BLOCK,
    HEADS,
    LEAST_KEYS,
    MAX_TOPK,
    SCRATCH,
    STRIDE,
    WIDTH,
    bytes_of_row,
    first_attempt,
    mask_words,
    multiprocessors,
    prefers_one_pass,
    rows_at_a_time,
)
from deepseek_v32.kernels.indexer_logits import indexer_logits
from deepseek_v32.kernels.indexer_topk import in_one_pass, indexer_topk, takes_one_pass
from deepseek_v32.kernels.select_topk import select_topk
from support.indexer_problems import FP8, Problem, random, with_scores
from support.score_rows import SHAPES


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
    """Masks, samples and their scores fit in SCRATCH, in parts that differ by less than a block."""
    step = rows_at_a_time(rows, keys)
    assert step % BLOCK == 0 and step * bytes_of_row(keys) + keys // STRIDE * (WIDTH + 4) <= SCRATCH
    parts = -(-rows // step)
    assert parts * (step - BLOCK) < rows


def test_the_shares_of_a_bound_cover_its_roundings() -> None:
    """Nine to bf16, each of at most 2^-9 of its operand, and 2^-16 for a group's weight in two numbers and for sums in fp32."""
    source = (SOURCES / "lightning_indexer" / "bounds.cuh").read_text()
    patterns = (r"float kShare = ([\d.]+)f \* 0x1p-9f;", r"float kOtherShare = ([\d.]+)f \* kShare;")
    factors = [Fraction(found[1]) for pattern in patterns if (found := re.search(pattern, source))]
    share = factors[0] / 512
    other = factors[1] * share
    rest, rounding = Fraction(1, 2**16), Fraction(1, 512)
    least, most = (1 - rest) * (1 - rounding) ** 9, (1 + rest) * (1 + rounding) ** 9
    # Heads of the sign of their group's weight, then the others; groups of positive weight, then those of negative weight.
    assert (1 + share) * least >= 1 and (1 - share) * most <= 1
    assert (1 + share) * (1 - other) * most <= 1 and (1 - share) * (1 + other) * least >= 1


def best_in_the_sample(size: int) -> torch.Tensor:
    """Half of the sampled keys are better than all others: the threshold is too high."""
    stretch = torch.arange(size // STRIDE)
    scores = torch.rand(size, generator=torch.Generator().manual_seed(1))
    scores[stretch * STRIDE + ((stretch * 2654435761 % 2**32) >> 16) % STRIDE] += (stretch % 2).float()
    return scores


def small_queries(rows: int, keys: int) -> Problem:
    """Of magnitude 1 to 8 instead of some hundreds."""
    q, *rest = random(rows, keys)
    size = 2.0 ** (torch.arange(rows) % 4)
    return (q.float() / 160 * size[:, None, None]).to(FP8), *rest


def largest_products(rows: int, keys: int) -> Problem:
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
    "the largest products": lambda: largest_products(300, 20_000),
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


def candidates(problem: Problem, thresholds: torch.Tensor) -> torch.Tensor:
    """bool [rows, keys]: whether a key's bound reaches its query's threshold."""
    q, k, weights, starts, ends, scales = problem
    library, (rows, keys) = load("lightning_indexer"), (len(q), len(k))
    refused = torch.zeros(1, dtype=torch.int32, device=q.device)
    bound_q = torch.empty(rows, HEADS, WIDTH, dtype=torch.uint8, device=q.device)
    bound_weights, factors = torch.empty(rows, HEADS, device=q.device), torch.empty(rows, 2, device=q.device)
    mask = torch.empty(-(-rows // BLOCK) * (BLOCK // 2), mask_words(keys), dtype=torch.int32, device=q.device)
    library.indexer_check_scales(scales, refused)
    library.indexer_prepare(q.view(torch.uint8), weights, refused, bound_q, bound_weights, factors)
    codes = k.view(torch.uint8)
    library.indexer_candidates(bound_q, codes, bound_weights, starts, ends, scales, factors, thresholds, mask)
    key = torch.arange(16, device=q.device)
    bits = (4 * (key % 8) + key // 8) + 2 * torch.arange(2, device=q.device)[:, None]
    both = mask[:, None, :, None] >> bits[:, None] & 1  # [pairs of rows, 2, words, 16]
    return both.bool().flatten(2).flatten(0, 1)[:rows, :keys]


@pytest.mark.gpu
@pytest.mark.parametrize("make", ON_A_GPU.values(), ids=ON_A_GPU.keys())
def test_keys_that_reach_the_threshold_are_candidates(make: Callable[[], Problem]) -> None:
    """Also those that are not selected; and of random keys few others."""
    q, k, weights, starts, ends, scales = (tensor.cuda() for tensor in make())
    scores = indexer_logits(q, k, weights, starts, ends, scales, backend="cuda")
    inside = torch.arange(len(k), device="cuda") < ends[:, None]
    finite = scores.masked_fill(~inside | ~scores.isfinite(), -1e30)
    thresholds = finite.topk(min(1000, len(k)), dim=1).values[:, -1].contiguous()
    found = candidates((q, k, weights, starts, ends, scales), thresholds) & inside
    assert not (inside & (scores >= thresholds[:, None]) & ~found).any()
    if make in (ON_A_GPU["seven rows of 128K"], ON_A_GPU["small queries"]):
        assert found.sum(1).float().mean() < 1700


@pytest.mark.gpu
@pytest.mark.parametrize(("alike", "succeeds"), [(7000, True), (9000, False)])
def test_scores_that_their_bounds_do_not_tell_apart(alike: int, succeeds: bool) -> None:
    """All of them are candidates, and of 9000 shared memory cannot hold all."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(40_000, generator=generator) / 2
    scores[torch.randperm(39_000, generator=generator)[:alike]] = 1 + torch.rand(alike, generator=generator) / 4096
    problem = [tensor.cuda() for tensor in with_scores(20, scores)]
    expected = select_topk(indexer_logits(*problem, backend="cuda"), problem[3], problem[4], 2048, backend="cuda")
    result, failed = first_attempt(*problem, 2048)
    assert failed.bool().tolist() == [not succeeds] * 20
    assert torch.equal(in_one_pass(*problem, 2048), expected) and (not succeeds or torch.equal(result, expected))


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
