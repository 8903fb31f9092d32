"""Lightning indexer scores against equation 1 in float64, from keys laid out by hand."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from support import caches, e4m3
from support.backends import Backend
from support.compare import cosine_distance

FP8 = torch.float8_e4m3fn
KINDS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, FP8], ids=["fp32", "bf16", "fp8"])
# relative to the sum of the terms' sizes: fp32 sums on the reference, tensor cores' 14 bits on compiled kernels
ACCUMULATION = {"reference": 2.0**-20}


def scores(q: np.ndarray, k: np.ndarray, weights: np.ndarray, k_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equation 1 for one query [H, D] and keys [S, D] -> scores [S], and the sum of their terms' sizes."""
    found, sizes = np.zeros(len(k)), np.zeros(len(k))
    for head in range(len(q)):
        found += weights[head] * np.maximum(k @ q[head], 0.0)
        sizes += abs(weights[head]) * (np.abs(k) @ np.abs(q[head]))
    return k_scale * found, np.abs(k_scale) * sizes


def make(rng: np.random.Generator, dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, np.ndarray]:
    """A random tensor of `dtype` and the float64 values that it holds."""
    values = rng.standard_normal(shape) * (16 if dtype == FP8 else 1)
    if dtype == FP8:
        codes = e4m3.encode(values)
        return e4m3.as_fp8(codes), e4m3.VALUES[codes]
    tensor = torch.from_numpy(values).to(dtype)
    return tensor, tensor.double().numpy()


def assert_row(backend: Backend, got: torch.Tensor, expected: tuple[np.ndarray, np.ndarray]) -> None:
    exact, size = expected
    error = np.abs(got.double().numpy() - exact)
    assert (error <= ACCUMULATION.get(backend.name, 2.0**-13) * size + 1e-30).all()
    assert cosine_distance(got.double().numpy(), exact) <= 5e-6


RANGES = {  # heads, S, [start, end) of each query
    "causal chunk at the start": (16, 5, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
    "one query, one key": (16, 1, [(0, 1)]),
    "released 64 heads, a tile and one": (64, 129, [(0, 128), (0, 129)]),
    "two sequences side by side": (16, 70, [(0, 3), (0, 4), (4, 70), (4, 69)]),
    "empty ranges": (16, 9, [(0, 0), (9, 9), (3, 3), (2, 7)]),
}


@KINDS
@pytest.mark.parametrize(("heads", "cached", "ranges"), RANGES.values(), ids=RANGES.keys())
def test_ragged(backend: Backend, dtype: torch.dtype, heads: int, cached: int, ranges: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(0)
    q, exact_q = make(rng, dtype, len(ranges), heads, 128)
    k, exact_k = make(rng, dtype, cached, 128)
    k_scale = (2.0 ** rng.integers(-6, 3, cached)).astype(np.float32)
    weights = rng.standard_normal((len(ranges), heads)).astype(np.float32)  # of both signs
    starts, ends = (torch.tensor(column, dtype=torch.int32) for column in zip(*ranges, strict=True))
    scale = torch.from_numpy(k_scale) if dtype == FP8 else None
    result = backend.run(indexer_logits, q, k, torch.from_numpy(weights), starts, ends, scale)
    assert result.shape == (len(ranges), cached) and result.dtype == torch.float32
    for row, (start, end) in enumerate(ranges):
        own_scale = k_scale[start:end] if dtype == FP8 else np.ones(end - start)
        expected = scores(exact_q[row], exact_k[start:end], weights[row].astype(np.float64), own_scale)
        assert_row(backend, result[row, start:end], expected)


@KINDS
def test_keys_outside_the_range_do_not_leak(backend: Backend, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    q, exact_q = make(rng, dtype, 2, 16, 128)
    k, exact_k = make(rng, dtype, 140, 128)
    scale = torch.ones(140)
    for unused in (slice(0, 5), slice(70, 140)):
        k.view(torch.uint8)[unused] = 0xFF
        scale[unused] = math.nan
    starts, ends = torch.tensor([5, 6], dtype=torch.int32), torch.tensor([70, 69], dtype=torch.int32)
    k_scale = scale if dtype == FP8 else None
    result = backend.run(indexer_logits, q, k, torch.ones(2, 16), starts, ends, k_scale)
    for row, (start, end) in enumerate([(5, 70), (6, 69)]):
        expected = scores(exact_q[row], exact_k[start:end], np.ones(16), np.ones(end - start))
        assert_row(backend, result[row, start:end], expected)


def test_relu_is_inside_the_sum_and_weights_outside(backend: Backend) -> None:
    """Two heads with opposite products, weights of both signs: only the positive product counts, with its weight's sign."""
    q = torch.zeros(2, 2, 128)
    q[:, 0, 0], q[:, 1, 0] = 1.0, -1.0
    k = torch.zeros(2, 128)
    k[0, 0], k[1, 0] = 3.0, -5.0
    weights = torch.tensor([[2.0, 7.0], [-2.0, -7.0]])
    bounds = torch.zeros(2, dtype=torch.int32), torch.full((2,), 2, dtype=torch.int32)
    result = backend.run(indexer_logits, q, k, weights, *bounds)
    assert result.tolist() == [[6.0, 35.0], [-6.0, -35.0]]


def test_no_query_and_no_key(backend: Backend) -> None:
    none = torch.zeros(0, dtype=torch.int32)
    q, k, weights = torch.ones(0, 4, 128), torch.ones(7, 128), torch.ones(0, 4)
    assert backend.run(indexer_logits, q, k, weights, none, none).shape == (0, 7)
    zero = torch.zeros(2, dtype=torch.int32)
    assert backend.run(indexer_logits, torch.ones(2, 4, 128), k[:0], torch.ones(2, 4), zero, zero).shape == (2, 0)


PAGED = {  # lengths (new tokens included), new tokens, max_context; pages are taken in a shuffled order
    "one token": ([1], 1, 1),
    "a page and one, and its neighbours": ([65, 64, 63], 1, 65),
    "ragged, bound above every length": ([3, 150, 64], 1, 180),
    "two new tokens each": ([2, 66, 129], 2, 129),
    "a sequence of a bucket's padding": ([0, 7], 1, 64),
    "fewer keys than new tokens": ([1, 0, 5], 3, 64),
}


@KINDS
@pytest.mark.parametrize(("lengths", "new", "max_context"), PAGED.values(), ids=PAGED.keys())
def test_paged(backend: Backend, dtype: torch.dtype, lengths: list[int], new: int, max_context: int) -> None:
    """Keys come through the block table; every slot that no sequence owns is NaN."""
    rng = np.random.default_rng(2)
    heads, columns = 16, -(-max_context // 64)
    q, exact_q = make(rng, dtype, len(lengths), new, heads, 128)
    weights = rng.standard_normal((len(lengths), new, heads)).astype(np.float32)
    free = list(rng.permutation(range(1, 1 + sum(-(-length // 64) for length in lengths))))
    pages = 1 + len(free)
    cache = (
        caches.poisoned(pages, 64, 1, 132) if dtype == FP8 else torch.full((pages, 64, 1, 128), math.nan, dtype=dtype)
    )
    table = torch.zeros(len(lengths), columns, dtype=torch.int32)  # unused columns name page 0, all poison
    contexts, context_scales = [], []
    for b, length in enumerate(lengths):
        keys, exact = make(rng, dtype, length, 128)
        scale = (2.0 ** rng.integers(-6, 3, length)).astype(np.float32)
        for position in range(length):
            if position % 64 == 0:
                table[b, position // 64] = int(free.pop())
            slot = int(table[b, position // 64]) * 64 + position % 64
            if dtype == FP8:
                caches.put_index_key(cache, slot, e4m3.codes_of(keys)[position], float(scale[position]))
            else:
                cache.view(-1, 128)[slot] = keys[position]
        contexts.append(exact)
        context_scales.append(scale if dtype == FP8 else np.ones(length))
    result = backend.run(
        paged_indexer_logits,
        q,
        cache,
        torch.from_numpy(weights),
        table,
        torch.tensor(lengths, dtype=torch.int32),
        max_context,
    )
    assert result.shape == (len(lengths) * new, max_context) and result.dtype == torch.float32
    for b, length in enumerate(lengths):
        for i in range(new):
            valid = max(length - new + i + 1, 0)
            expected = scores(
                exact_q[b, i], contexts[b][:valid], weights[b, i].astype(np.float64), context_scales[b][:valid]
            )
            assert_row(backend, result[b * new + i, :valid], expected)


def call(dtype: torch.dtype = torch.float32, **changes: torch.Tensor | None) -> torch.Tensor:
    bounds = torch.zeros(2, dtype=torch.int32)
    given = {
        "q": torch.ones(2, 4, 128).to(dtype),
        "k": torch.ones(3, 128).to(dtype),
        "weights": torch.ones(2, 4),
        "starts": bounds,
        "ends": bounds,
        "k_scale": None,
    } | changes
    return indexer_logits(*given.values())  # type: ignore[arg-type]


def paged(**changes: torch.Tensor) -> torch.Tensor:
    given = {
        "q": torch.ones(2, 1, 4, 128).to(FP8),
        "cache": caches.poisoned(1, 64, 1, 132),
        "weights": torch.ones(2, 1, 4),
        "block_table": torch.zeros(2, 1, dtype=torch.int32),
        "lengths": torch.ones(2, dtype=torch.int32),
    } | changes
    return paged_indexer_logits(*given.values(), 64)


MISUSE = {
    "fp8 keys without scale": (lambda: call(FP8), "k_scale is missing for keys of .*e4m3fn"),
    "fp32 keys with scale": (lambda: call(k_scale=torch.ones(3)), "k_scale is given for keys of torch.float32"),
    "a scale too many": (lambda: call(FP8, k_scale=torch.ones(4)), r"k_scale has shape \[4\], expected \[3\]"),
    "mixed dtypes": (
        lambda: call(k=torch.ones(3, 128).bfloat16()),
        "k has dtype torch.bfloat16, expected torch.float32",
    ),
    "bf16 weights": (lambda: call(weights=torch.ones(2, 4).bfloat16()), "weights has dtype torch.bfloat16"),
    "weights of another head count": (
        lambda: call(weights=torch.ones(2, 5)),
        r"weights has shape \[2, 5\], expected \[2, 4\]",
    ),
    "int64 ends": (lambda: call(ends=torch.zeros(2, dtype=torch.int64)), "ends has dtype torch.int64"),
    "starts of one row": (lambda: call(starts=torch.zeros(1, dtype=torch.int32)), r"starts has shape \[1\]"),
    "fp32 queries for a byte cache": (
        lambda: paged(q=torch.ones(2, 1, 4, 128)),
        r"cache has shape .*, expected \[.*128\]",
    ),
    "table of one sequence": (
        lambda: paged(block_table=torch.zeros(1, 1, dtype=torch.int32)),
        r"block_table has shape \[1, 1\], expected \[2, \*\]",
    ),
    "lengths elsewhere": (
        lambda: paged(lengths=torch.ones(2, dtype=torch.int32, device="meta")),
        "lengths is on meta, expected cpu",
    ),
}


@pytest.mark.parametrize(("misuse", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(misuse: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        misuse()  # type: ignore[operator]
