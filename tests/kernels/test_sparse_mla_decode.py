"""Sparse decode attention against a float64 softmax over the selected slots."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from support import caches
from support.attention import attend
from support.backends import Backend
from support.compare import LSE_FP8, Tolerance, assert_close
from support.sparse import KEY_SIZE, SCALE, SMALL, int32, out_tolerance, pick, queries

DECODE = {  # B, s_q, H, page size, pages, K
    "one of everything, page size 1": (1, 1, 1, 1, 1, 1),
    "page size 2": (2, 1, 16, 2, 40, 64),
    "released page size, 128 heads": (2, 1, 128, 64, 4, 128),
    "page size 69, two tokens": (3, 2, 16, 69, 3, 64),
    "K of a tile and one": (1, 2, 64, 64, 3, 65),
}


@pytest.mark.parametrize("kind", ["ue8m0 scales", "plain amax/448 scales", "bf16 cache", "fp32 cache"])
@pytest.mark.parametrize("options", ["", "topk_length", "attn_sink", "both"])
@pytest.mark.parametrize(("batch", "new", "heads", "page", "pages", "columns"), DECODE.values(), ids=DECODE.keys())
def test_decode(
    backend: Backend, batch: int, new: int, heads: int, page: int, pages: int, columns: int, options: str, kind: str
) -> None:
    """All bytes of slots that are not selected are NaN: values, scales and RoPE dims."""
    rng = np.random.default_rng(6)
    dtype = torch.float32 if kind == "fp32 cache" else torch.bfloat16
    total = pages * page
    q, exact_q = queries(rng, dtype, batch, new, heads)
    usable = rng.permutation(total)[: max(1, total // 2)]
    if kind.endswith("scales"):
        codes, scales, rope, held = caches.random_latents(rng, len(usable), kind.startswith("ue8m0"))
        scales, rope, held = scales * SMALL, rope * SMALL, held * SMALL
        cache = caches.poisoned(pages, page, 1, 656)
        for i, slot in enumerate(usable):
            caches.put_latent(cache, int(slot), codes[i], scales[i], rope[i])
    else:
        cache = torch.full((pages, page, 1, 576), math.nan, dtype=dtype)
        values = torch.from_numpy(rng.standard_normal((len(usable), 576)) * KEY_SIZE[dtype]).to(dtype)
        cache.view(-1, 576)[usable] = values
        held = values.double().numpy()
    row_of = {int(slot): i for i, slot in enumerate(usable)}
    rows = [[pick(rng, usable, columns, [-1] if columns > 1 else []) for _ in range(new)] for _ in range(batch)]
    rows[-1][-1] = [-1] * columns if batch > 1 else rows[-1][-1]  # a row without keys
    lengths = rng.integers(0, columns + 1, batch).tolist() if options in ("topk_length", "both") else None
    sink = rng.standard_normal(heads) * 3 if options in ("attn_sink", "both") else None
    if sink is not None and heads > 2:
        sink[:2] = math.inf, -math.inf
    out, lse = backend.run(
        sparse_mla_decode,
        q,
        cache,
        int32(rows),
        SCALE,
        topk_length=None if lengths is None else int32(lengths),
        attn_sink=None if sink is None else torch.from_numpy(sink).float(),
    )
    assert out.dtype == dtype and out.shape == (batch, new, heads, 512)
    assert lse.dtype == torch.float32 and lse.shape == (batch, heads, new)
    sink = None if sink is None else sink.astype(np.float32).astype(np.float64)
    # A kernel may round a scale that is no power of two, or the latent, to bf16: 2^-9 of every key.
    lse_tolerance = Tolerance(2e-3, 2e-3) if kind.startswith("plain") else LSE_FP8
    for b in range(batch):
        for i in range(new):
            counted = rows[b][i] if lengths is None else rows[b][i][: lengths[b]]
            keys = held[[row_of[slot] for slot in counted if slot >= 0]]
            expected = attend(exact_q[b, i], keys, SCALE, 512, sink)
            assert_close(out[b, i], expected[0], out_tolerance(dtype), "out")
            assert_close(lse[b, :, i], expected[2], lse_tolerance, "lse")


def test_decode_is_the_same_twice(backend: Backend) -> None:
    rng = np.random.default_rng(7)
    codes, scales, rope, _ = caches.random_latents(rng, 64)
    cache = caches.poisoned(1, 64, 1, 656)
    for slot in range(64):
        caches.put_latent(cache, slot, codes[slot], scales[slot], rope[slot])
    q, _ = queries(rng, torch.bfloat16, 2, 1, 16)
    indices = int32([[list(range(64))], [list(range(63, -1, -1))]])
    first, second = (backend.run(sparse_mla_decode, q, cache, indices, SCALE) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


@pytest.mark.parametrize(
    ("batch", "pages", "columns"), [(0, 2, 64), (2, 0, 64), (2, 2, 0)], ids=["no query", "no page", "no column"]
)
def test_decode_of_nothing(backend: Backend, batch: int, pages: int, columns: int) -> None:
    out, lse = backend.run(
        sparse_mla_decode,
        torch.ones(batch, 1, 4, 576),
        caches.poisoned(pages, 64, 1, 656),
        torch.full((batch, 1, columns), -1, dtype=torch.int32),
        SCALE,
    )
    assert out.shape == (batch, 1, 4, 512) and out.eq(0).all()
    assert lse.shape == (batch, 4, 1) and lse.eq(-math.inf).all()
