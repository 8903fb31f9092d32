"""Lightning indexer scores against equation 1 in float64, from keys laid out by hand."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.indexer_logits import indexer_logits, paged_indexer_logits
from support import caches, e4m3
from support.backends import Backend
from support.compare import cosine_distance

FP8 = torch.float8_e4m3fn
KINDS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, FP8], ids=["fp32", "bf16", "fp8"])
# Relative to the sum of the terms' magnitudes: fp32 sums in the reference, 14 bits of tensor cores in compiled kernels.
ACCUMULATION = {"reference": 2.0**-20}


def scores(q: np.ndarray, k: np.ndarray, weights: np.ndarray, k_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equation 1 for one query [H, D] and keys [S, D] -> scores [S], and the sums of the magnitudes of their terms."""
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


def assert_rows(backend: Backend, rows: Iterable[tuple[torch.Tensor, tuple[np.ndarray, np.ndarray]]]) -> None:
    """Each score is within the error of the accumulation, and all scores are within the cosine distance."""
    got, exact = [], []
    for found, (expected, size) in rows:
        got.append(found.double().numpy())
        exact.append(expected)
        error = np.abs(got[-1] - expected)
        assert (error <= ACCUMULATION.get(backend.name, 2.0**-13) * size + 1e-30).all()
    assert cosine_distance(np.concatenate(got), np.concatenate(exact)) <= 5e-6


RANGES = {  # heads, S, [start, end) of each query
    "causal chunk at the start": (16, 5, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
    "one query, one key": (16, 1, [(0, 1)]),
    "released 64 heads, a tile and one": (64, 129, [(0, 128), (0, 129)]),
    "32 heads, more queries than are done at once": (32, 66, [(0, 54 + n) for n in range(13)]),
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
    own_scale = k_scale if dtype == FP8 else np.ones(cached)
    assert_rows(
        backend,
        (
            (result[row, start:end], scores(exact_q[row], exact_k[start:end], weights[row], own_scale[start:end]))
            for row, (start, end) in enumerate(ranges)
        ),
    )


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
    assert_rows(
        backend,
        (
            (result[row, start:end], scores(exact_q[row], exact_k[start:end], np.ones(16), np.ones(end - start)))
            for row, (start, end) in enumerate([(5, 70), (6, 69)])
        ),
    )


def test_relu_is_inside_the_sum_and_weights_outside(backend: Backend) -> None:
    """Two heads with opposite products and weights of both signs: only the positive product counts, with the sign of its weight."""
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


PAGED = {  # heads, lengths (with the new tokens), new tokens, max_context; pages are in shuffled order
    "one token": (16, [1], 1, 1),
    "a page and one, and its neighbours": (16, [65, 64, 63], 1, 65),
    "ragged, bound above every length": (32, [3, 150, 64], 1, 180),
    "two new tokens each": (16, [2, 66, 129], 2, 129),
    "four new tokens, released 64 heads": (64, [131, 4], 4, 131),
    "a sequence of a bucket's padding": (64, [0, 7], 1, 64),
    "fewer keys than new tokens": (16, [1, 0, 5], 3, 64),
    "more new tokens than are done at once": (64, [70, 5], 5, 70),
}
LONG = {  # enough pages to fill every stage of a pipeline; the ends are inside and at the edge of a block of the top-k
    "about top-k": (64, [2047, 2048, 2049, 1], 1, 2049),
    "about top-k, two new tokens": (32, [2047, 2048, 2049], 2, 2049),
    "32K and 128K": (64, [32768, 131072, 65], 1, 131072),
    "128K, two new tokens": (64, [131072], 2, 131072),
}


def check_paged(backend: Backend, dtype: torch.dtype, heads: int, lengths: list[int], new: int, columns: int) -> None:
    """Keys are read by the block table; every slot that no sequence owns is NaN."""
    rng = np.random.default_rng(2)
    q, exact_q = make(rng, dtype, len(lengths), new, heads, 128)
    weights = rng.standard_normal((len(lengths), new, heads)).astype(np.float32)
    owned = [-(-length // 64) for length in lengths]
    free = rng.permutation(np.arange(1, 1 + sum(owned)))
    table = torch.zeros(
        len(lengths), -(-columns // 64), dtype=torch.int32
    )  # unused columns name page 0, which is poison
    if dtype == FP8:
        cache = caches.poisoned(1 + sum(owned), 64, 1, 132)
    else:
        cache = torch.full((1 + sum(owned), 64, 1, 128), math.nan, dtype=dtype)
    contexts, context_scales = [], []
    for b, length in enumerate(lengths):
        pages, free = free[: owned[b]], free[owned[b] :]
        table[b, : owned[b]] = torch.from_numpy(pages)
        keys, exact = make(rng, dtype, length, 128)
        scale = (2.0 ** rng.integers(-6, 3, length)).astype(np.float32) if dtype == FP8 else np.ones(length)
        if dtype == FP8:
            caches.put_index_keys(cache, pages, e4m3.codes_of(keys), scale)
        else:
            slots = np.arange(length)
            cache.view(-1, 128)[torch.from_numpy(pages[slots // 64] * 64 + slots % 64)] = keys
        contexts.append(exact)
        context_scales.append(scale)
    of_length = torch.tensor(lengths, dtype=torch.int32)
    result = backend.run(paged_indexer_logits, q, cache, torch.from_numpy(weights), table, of_length, columns)
    assert result.shape == (len(lengths) * new, columns) and result.dtype == torch.float32
    valid = {(b, i): max(length - new + i + 1, 0) for b, length in enumerate(lengths) for i in range(new)}
    assert_rows(
        backend,
        (
            (result[b * new + i, :n], scores(exact_q[b, i], contexts[b][:n], weights[b, i], context_scales[b][:n]))
            for (b, i), n in valid.items()
        ),
    )


@KINDS
@pytest.mark.parametrize(("heads", "lengths", "new", "columns"), PAGED.values(), ids=PAGED.keys())
def test_paged(backend: Backend, dtype: torch.dtype, heads: int, lengths: list[int], new: int, columns: int) -> None:
    check_paged(backend, dtype, heads, lengths, new, columns)


@pytest.mark.parametrize(("heads", "lengths", "new", "columns"), LONG.values(), ids=LONG.keys())
def test_long_contexts(backend: Backend, heads: int, lengths: list[int], new: int, columns: int) -> None:
    if backend.name == "reference" and max(lengths) > 4096:
        pytest.skip("these lengths are about the compiled kernels' pipelines")
    check_paged(backend, FP8, heads, lengths, new, columns)


@pytest.mark.parametrize(("rows", "cached"), [(70, 4133), (5, 131072)], ids=["every key range", "128K keys"])
def test_long_prefill(backend: Backend, rows: int, cached: int) -> None:
    """Ranges start and end anywhere, so that queries which share a tile of keys have different parts of it in their ranges."""
    if backend.name == "reference" and cached > 8192:
        pytest.skip("these lengths are about the compiled kernels' pipelines")
    rng = np.random.default_rng(3)
    q, exact_q = make(rng, FP8, rows, 64, 128)
    k, exact_k = make(rng, FP8, cached, 128)
    k_scale = rng.uniform(0.01, 1, cached).astype(np.float32)
    weights = rng.standard_normal((rows, 64)).astype(np.float32)
    starts = np.sort(rng.integers(0, cached // 2, rows)).astype(np.int32)
    ends = np.minimum(starts + rng.integers(0, cached, rows), cached).astype(np.int32)
    given = (torch.from_numpy(argument) for argument in (weights, starts, ends, k_scale))
    result = backend.run(indexer_logits, q, k, *given)
    assert_rows(
        backend,
        (
            (result[row, start:end], scores(exact_q[row], exact_k[start:end], weights[row], k_scale[start:end]))
            for row, (start, end) in enumerate(zip(starts, ends, strict=True))
        ),
    )


def test_the_same_bits_every_time(backend: Backend) -> None:
    rng = np.random.default_rng(4)
    q, k = make(rng, FP8, 9, 64, 128)[0], make(rng, FP8, 700, 128)[0]
    bounds = torch.zeros(9, dtype=torch.int32), torch.arange(692, 701, dtype=torch.int32)
    first, second = (backend.run(indexer_logits, q, k, torch.ones(9, 64), *bounds, torch.ones(700)) for _ in range(2))
    for row, end in enumerate(bounds[1].tolist()):
        assert torch.equal(first[row, :end], second[row, :end])


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [16, 64])
@pytest.mark.parametrize("new", [1, 2, 3, 4, 7])
def test_decode_gives_the_bits_of_prefill(new: int, heads: int) -> None:
    """Whatever is computed at a time, a score's additions have one order. A row of a chunk has the bits of a single row."""
    batch, keys = 5, 1000
    generator = torch.Generator("cuda").manual_seed(new)
    values = torch.randn(batch * new * heads + keys, 128, device="cuda", generator=generator) * 16
    q, k = values.to(FP8)[: batch * new * heads].view(-1, heads, 128), values.to(FP8)[batch * new * heads :]
    weights = torch.randn(len(q), heads, device="cuda", generator=generator)
    scales = torch.rand(keys, device="cuda", generator=generator)
    zero = torch.zeros(len(q), dtype=torch.int32, device="cuda")
    chunk = indexer_logits(q, k, weights, zero, zero + keys, scales, backend="cuda")
    single = [
        indexer_logits(q[i : i + 1], k, weights[i : i + 1], zero[:1], zero[:1] + keys, scales, backend="cuda")
        for i in (0, 3)
    ]
    assert torch.equal(torch.cat(single), chunk[[0, 3]])

    pages = -(-keys // 64)
    padded = torch.zeros(pages * 64, 128, dtype=torch.uint8, device="cuda")
    padded[:keys] = k.view(torch.uint8)
    padded_scales = torch.zeros(pages * 64, device="cuda")
    padded_scales[:keys] = scales
    cache = torch.cat((padded.view(pages, -1), padded_scales.view(pages, 64).view(torch.uint8)), 1)
    table = torch.arange(pages, dtype=torch.int32, device="cuda").repeat(batch, 1)
    lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
    paged = paged_indexer_logits(
        q.view(batch, new, heads, 128), cache.view(pages, 64, 1, 132), weights.view(batch, new, heads), table, lengths,
        keys, backend="cuda",
    )  # fmt: skip
    visible = keys - new + 1 + torch.arange(new, device="cuda").repeat(batch)
    seen = torch.arange(keys, device="cuda") < visible[:, None]
    assert torch.equal(paged[seen], chunk[seen])
