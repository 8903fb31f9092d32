"""Sparse prefill attention against a float64 softmax over the selected rows."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_latents
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from support import caches
from support.attention import attend
from support.backends import Backend
from support.compare import BF16_OUT, FP32_OUT, LSE, LSE_FP8, Tolerance, assert_close
from support.sparse import KEY_SIZE, SCALE, SMALL, int32, out_tolerance, pick, queries

INT_MIN = -(2**31)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


PREFILL = {  # T, H, S, K, whether some indices are invalid
    "one of everything": (1, 1, 1, 1, []),
    "all valid, K below a tile": (3, 16, 90, 40, []),
    "K of a tile, 128 heads": (2, 128, 300, 128, []),
    "a tile and one": (2, 16, 300, 129, []),
    "-1 sprinkled": (3, 16, 200, 128, [-1]),
    "INT_MIN, past the end, far past": (3, 16, 200, 128, [INT_MIN, -2, 200, 201, 2**31 - 1]),
    "more columns than rows": (2, 16, 5, 64, []),
    "nothing valid": (2, 16, 7, 3, [-1]),
    "two pairs of tiles and a half, 32 heads": (2, 32, 700, 320, [-1]),
    "heads that end inside a tile": (2, 80, 300, 64, []),
    "the released top-k": (1, 64, 5000, 2048, [-1]),
}


@DTYPES
@pytest.mark.parametrize("lengths", [False, True], ids=["", "topk_length"])
@pytest.mark.parametrize(("tokens", "heads", "cached", "columns", "invalid"), PREFILL.values(), ids=PREFILL.keys())
def test_prefill(
    backend: Backend,
    dtype: torch.dtype,
    tokens: int,
    heads: int,
    cached: int,
    columns: int,
    invalid: list[int],
    lengths: bool,
) -> None:
    """Rows of kv that no query selects are NaN. Beyond topk_length valid indices do not count either."""
    rng = np.random.default_rng(0)
    q, exact_q = queries(rng, dtype, tokens, heads)
    usable = np.arange(cached)[:: 1 if cached < 10 else 2]  # odd rows are poison
    kv = torch.from_numpy(rng.standard_normal((cached, 1, 576)) * KEY_SIZE[dtype]).to(dtype)
    exact_kv = kv[:, 0].double().numpy()
    if cached >= 10:
        kv[1::2] = math.nan
    rows = [pick(rng, usable, columns, invalid) for _ in range(tokens)]
    counts = rng.integers(0, columns + 1, tokens).tolist() if lengths else [columns] * tokens
    poisoned = [
        row[:count] + [1 if cached >= 10 else 0] * (columns - count) for row, count in zip(rows, counts, strict=True)
    ]
    result = backend.run(
        sparse_mla_prefill, q, kv, int32(poisoned)[:, None], SCALE, topk_length=int32(counts) if lengths else None
    )
    selected = [[i for i in row[:count] if 0 <= i < cached] for row, count in zip(rows, counts, strict=True)]
    expected = [attend(exact_q[t], exact_kv[selected[t]], SCALE, 512) for t in range(tokens)]
    out, max_logits, lse = (np.stack(part) for part in zip(*expected, strict=True))
    assert result[0].dtype == dtype and result[1].dtype == result[2].dtype == torch.float32
    assert_close(result[0], out, out_tolerance(dtype), "out")
    assert_close(result[1], max_logits, LSE, "max_logits")
    assert_close(result[2], lse, LSE, "lse")


@DTYPES
def test_prefill_over_strided_rows(backend: Backend, dtype: torch.dtype) -> None:
    """q, kv and indices are slices of wider tensors."""
    rng = np.random.default_rng(8)
    q = torch.from_numpy(rng.standard_normal((3, 20, 592))).to(dtype)[..., 8:584]
    kv = torch.from_numpy(rng.standard_normal((60, 2, 584)) * KEY_SIZE[dtype]).to(dtype)[:, 1:, :576]
    indices = int32(rng.integers(0, 60, (6, 1, 130)))[::2]
    out, max_logits, lse = backend.run(sparse_mla_prefill, q, kv, indices, SCALE)
    for t in range(3):
        keys = kv[indices[t, 0].long(), 0].double().numpy()
        expected = attend(q[t].double().numpy(), keys, SCALE, 512)
        assert_close(out[t], expected[0], out_tolerance(dtype), "out")
        assert_close(max_logits[t], expected[1], LSE, "max_logits")
        assert_close(lse[t], expected[2], LSE, "lse")


@pytest.mark.heavy
def test_prefill_of_more_queries_than_a_grid_has_in_its_second_dimension(backend: Backend) -> None:
    """With one key the output is its latent, and the logit is both the maximum and the logsumexp."""
    generator = torch.Generator().manual_seed(9)
    q, kv = (torch.randn(n, 1, 576, generator=generator).bfloat16() for n in (65540, 7))
    indices = torch.arange(65540, dtype=torch.int32) % 7
    out, max_logits, lse = backend.run(sparse_mla_prefill, q, kv, indices[:, None, None], SCALE)
    keys = kv[indices.long(), 0]
    assert torch.equal(out[:, 0], keys[:, :512])
    logits = (q[:, 0].double() * keys.double()).sum(1, keepdim=True).numpy() * SCALE
    assert_close(max_logits, logits, Tolerance(2.01 / 65536, 2e-5), "max_logits")  # sums of 576 terms that may cancel
    assert_close(lse, logits, Tolerance(2.01 / 65536, 2e-5), "lse")


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("tilelang") is None or not torch.cuda.is_available(), reason="needs tilelang and a GPU")
def test_plain_and_pipelined_tile_kernels_agree() -> None:
    from bench.kernel_parts.plain_attention import sparse_mla_prefill_plain

    generator = torch.Generator("cuda").manual_seed(10)
    q = torch.randn(5, 80, 576, generator=generator, device="cuda").bfloat16()
    kv = torch.randn(900, 1, 576, generator=generator, device="cuda").bfloat16() / 10
    indices = torch.randint(-200, 1100, (5, 1, 450), generator=generator, device="cuda", dtype=torch.int32)
    lengths = torch.tensor([450, 0, 1, 64, 300], dtype=torch.int32, device="cuda")
    sink = torch.linspace(-5, 5, 80, device="cuda")
    plain = sparse_mla_prefill_plain(q, kv, indices, SCALE, lengths, sink)
    pipelined = sparse_mla_prefill(q, kv, indices, SCALE, 512, lengths, sink, backend="tile")
    for mine, theirs, tolerance in zip(plain, pipelined, (BF16_OUT, LSE, LSE), strict=True):
        assert_close(mine, theirs.double().cpu().numpy(), tolerance)


def test_prefill_weighs_a_repeated_index_twice(backend: Backend) -> None:
    """A key that is selected twice counts twice."""
    rng = np.random.default_rng(1)
    q, exact_q = queries(rng, torch.float32, 1, 4)
    kv = torch.from_numpy(rng.standard_normal((3, 1, 576))).float()
    out, _, lse = backend.run(sparse_mla_prefill, q, kv, int32([[[0, 2, 2]]]), SCALE)
    expected = attend(exact_q[0], kv[[0, 2, 2], 0].double().numpy(), SCALE, 512)
    assert_close(out[0], expected[0], FP32_OUT)
    assert_close(lse[0], expected[2], LSE)


SINKS = [-math.inf, math.inf, 0.0, -3.0, 40.0, -2000.0, 3.0, 1.5]  # one for each head


@DTYPES
def test_prefill_attention_sink(backend: Backend, dtype: torch.dtype) -> None:
    """The sink is added to the denominator of out only: -inf changes nothing, +inf makes the head zero; lse is without it."""
    rng = np.random.default_rng(2)
    q, exact_q = queries(rng, dtype, 3, 8)
    kv = torch.from_numpy(rng.standard_normal((50, 1, 576)) * KEY_SIZE[dtype]).to(dtype)
    rows = [list(range(50)), [4] + [-1] * 49, [-1] * 50]
    out, max_logits, lse = backend.run(
        sparse_mla_prefill, q, kv, int32(rows)[:, None], SCALE, attn_sink=torch.tensor(SINKS)
    )
    for t, row in enumerate(rows):
        keys = kv[[i for i in row if i >= 0], 0].double().numpy()
        expected = attend(exact_q[t], keys, SCALE, 512, np.array(SINKS))
        assert_close(out[t], expected[0], out_tolerance(dtype), "out")
        assert_close(max_logits[t], expected[1], LSE, "max_logits")
        assert_close(lse[t], expected[2], LSE, "lse")
    assert out[:, 1].eq(0).all()


@DTYPES
def test_prefill_logits_far_from_zero(backend: Backend, dtype: torch.dtype) -> None:
    """Logits of several thousand, of both signs: the maximum must be subtracted before the exponential."""
    rng = np.random.default_rng(3)
    q = torch.from_numpy(rng.standard_normal((2, 4, 576)) * 30).to(dtype)
    q[1] = -q[0]
    kv = torch.from_numpy(rng.standard_normal((40, 1, 576)) + 5).to(dtype)
    out, max_logits, lse = backend.run(sparse_mla_prefill, q, kv, int32([[list(range(40))]] * 2), SCALE)
    for t in range(2):
        expected = attend(q[t].double().numpy(), kv[:, 0].double().numpy(), SCALE, 512)
        # The logits are fp32 sums of 576 terms of some hundred: an absolute error of 1e-4, so a relative one of 1e-4 in out.
        assert_close(out[t], expected[0], Tolerance(1e-3, 1e-3) if dtype == torch.float32 else BF16_OUT, "out")
        assert_close(max_logits[t], expected[1], Tolerance(1e-6, 1e-3), "max_logits")
        assert_close(lse[t], expected[2], Tolerance(1e-6, 1e-3), "lse")


def test_prefill_reads_the_fp8_cache(backend: Backend) -> None:
    """kv is the paged FP8 cache: an index is a slot, and unused slots are NaN."""
    rng = np.random.default_rng(4)
    codes, scales, rope, rows = caches.random_latents(rng, 6)
    scales, rope, rows = scales * SMALL, rope * SMALL, rows * SMALL
    slots = [130, 0, 63, 64, 127, 3]
    cache = caches.poisoned(3, 64, 1, 656)
    for i, slot in enumerate(slots):
        caches.put_latent(cache, slot, codes[i], scales[i], rope[i])
    q, exact_q = queries(rng, torch.bfloat16, 2, 16)
    indices = int32([[[130, 0, 63, -1, 192, 2**31 - 1]], [[64, 127, 3, 130, INT_MIN, -1]]])
    out, max_logits, lse = backend.run(sparse_mla_prefill, q, cache, indices, SCALE)
    for t, selected in enumerate([[0, 1, 2], [3, 4, 5, 0]]):
        expected = attend(exact_q[t], rows[selected], SCALE, 512)
        assert_close(out[t], expected[0], BF16_OUT, "out")
        assert_close(max_logits[t], expected[1], LSE_FP8, "max_logits")
        assert_close(lse[t], expected[2], LSE_FP8, "lse")


@pytest.mark.gpu
def test_auto_converts_a_small_cache_once() -> None:
    """With 64 heads and at most 256 slots a query: the bits of attention over the converted rows."""
    cache = torch.zeros(4, 64, 1, 656, dtype=torch.uint8, device="cuda")
    cache[..., :512] = torch.randint(0x28, 0x38, (4, 64, 1, 512), device="cuda")
    cache[..., 512:528] = torch.ones(4, 64, 1, 4, device="cuda").view(torch.uint8)
    q = torch.randn(3, 64, 576, device="cuda").bfloat16()
    indices = torch.randint(-1, 256, (3, 1, 128), device="cuda", dtype=torch.int32)
    rows = gather_latents(cache, torch.arange(256, device="cuda"), 512, torch.bfloat16)
    results = (sparse_mla_prefill(q, cache, indices, SCALE), sparse_mla_prefill(q, rows[:, None], indices, SCALE))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("tokens", "cached", "columns"), [(0, 5, 8), (2, 0, 8), (2, 5, 0)], ids=["no query", "no key", "no column"]
)
def test_prefill_of_nothing(backend: Backend, tokens: int, cached: int, columns: int) -> None:
    q, kv = torch.ones(tokens, 4, 576), torch.ones(cached, 1, 576)
    out, max_logits, lse = backend.run(
        sparse_mla_prefill, q, kv, torch.zeros(tokens, 1, columns, dtype=torch.int32), SCALE
    )
    assert out.shape == (tokens, 4, 512) and out.eq(0).all()
    assert max_logits.eq(-math.inf).all() and lse.eq(-math.inf).all() and lse.shape == (tokens, 4)


def test_other_dims(backend: Backend) -> None:
    """Other dims than 512 + 64: the 32 + 8 of a small model."""
    rng = np.random.default_rng(5)
    q = torch.from_numpy(rng.standard_normal((2, 3, 40))).float()
    kv = torch.from_numpy(rng.standard_normal((9, 1, 40))).float()
    out, _, lse = backend.run(sparse_mla_prefill, q, kv, int32([[[0, 8]], [[3, -1]]]), 0.3, value_dim=32)
    for t, selected in enumerate([[0, 8], [3]]):
        expected = attend(q[t].double().numpy(), kv[selected, 0].double().numpy(), 0.3, 32)
        assert_close(out[t], expected[0], FP32_OUT)
        assert_close(lse[t], expected[2], LSE)
