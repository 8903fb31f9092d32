"""Sparse attention, prefill and decode, against a float64 softmax over the rows that the indices name."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import pad_topk, sparse_mla_prefill
from support import caches
from support.attention import attend
from support.backends import Backend
from support.compare import BF16_OUT, FP32_OUT, LSE, LSE_FP8, Tolerance, assert_close

SCALE = 0.1352337788608801  # the released model's
INT_MIN = -(2**31)
# bf16 outputs are held to the public tests' tolerance, whose absolute part belongs to keys of a tenth of unit size
KEY_SIZE = {torch.float32: 1.0, torch.bfloat16: 0.1}
SMALL = 2.0**-5  # the same for FP8 records, exactly: their rows are up to four times unit size
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def out_tolerance(dtype: torch.dtype) -> Tolerance:
    return FP32_OUT if dtype == torch.float32 else BF16_OUT


def int32(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def queries(rng: np.random.Generator, dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, np.ndarray]:
    q = torch.from_numpy(rng.standard_normal((*shape, 576))).to(dtype)
    return q, q.double().numpy()


def pick(rng: np.random.Generator, usable: np.ndarray, columns: int, invalid: list[int]) -> list[int]:
    """`columns` indices: distinct usable rows, with invalid ones sprinkled in."""
    row = rng.permutation(usable)[:columns].tolist()
    row += [-1] * (columns - len(row))
    for column in range(0, columns, 3):
        if invalid:
            row[column] = int(rng.choice(invalid))
    return row


PREFILL = {  # T, H, S, K, invalid indices sprinkled in
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
    """Rows of kv that no query selects are NaN; beyond topk_length even valid indices do not count."""
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
    """Heads of a wider projection, rows of a wider cache, every other list of indices."""
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


def test_prefill_of_more_queries_than_a_grid_has_in_its_second_dimension(backend: Backend) -> None:
    """One key each: the output is its latent, and the logit is both maximum and logsumexp."""
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
    from deepseek_v32.kernels.tile.sparse_mla_prefill import sparse_mla_prefill_plain

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
    """The contract is a sum over columns, not over a set."""
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
    """The sink joins out's denominator only: -inf changes nothing, +inf silences the head, lse is returned without it."""
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
    """Logits of some thousands, of both signs: exponentials must be of differences."""
    rng = np.random.default_rng(3)
    q = torch.from_numpy(rng.standard_normal((2, 4, 576)) * 30).to(dtype)
    q[1] = -q[0]
    kv = torch.from_numpy(rng.standard_normal((40, 1, 576)) + 5).to(dtype)
    out, max_logits, lse = backend.run(sparse_mla_prefill, q, kv, int32([[list(range(40))]] * 2), SCALE)
    for t in range(2):
        expected = attend(q[t].double().numpy(), kv[:, 0].double().numpy(), SCALE, 512)
        # the logits themselves are fp32 sums of 576 terms of hundreds: 1e-4 absolute, so 1e-4 relative in out
        assert_close(out[t], expected[0], Tolerance(1e-3, 1e-3) if dtype == torch.float32 else BF16_OUT, "out")
        assert_close(max_logits[t], expected[1], Tolerance(1e-6, 1e-3), "max_logits")
        assert_close(lse[t], expected[2], Tolerance(1e-6, 1e-3), "lse")


def test_prefill_reads_the_fp8_cache(backend: Backend) -> None:
    """kv as the paged byte cache: an index is a slot, rows are what the cache holds, unused slots are NaN."""
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
    """Nothing in the contract fixes 512 + 64: a small model's 32 + 8."""
    rng = np.random.default_rng(5)
    q = torch.from_numpy(rng.standard_normal((2, 3, 40))).float()
    kv = torch.from_numpy(rng.standard_normal((9, 1, 40))).float()
    out, _, lse = backend.run(sparse_mla_prefill, q, kv, int32([[[0, 8]], [[3, -1]]]), 0.3, value_dim=32)
    for t, selected in enumerate([[0, 8], [3]]):
        expected = attend(q[t].double().numpy(), kv[selected, 0].double().numpy(), 0.3, 32)
        assert_close(out[t], expected[0], FP32_OUT)
        assert_close(lse[t], expected[2], LSE)


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
    """Slots that are not selected are NaN throughout: values, scales and rope."""
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
    rows[-1][-1] = [-1] * columns if batch > 1 else rows[-1][-1]  # a row with nothing
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
    # a reader may round a plain scale, or the latent, to bf16: 2^-9 of every key
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


def test_pad_topk() -> None:
    indices = int32([[5, 3, -1]])
    assert pad_topk(indices, 4).tolist() == [[5, 3, -1, -1]]
    assert pad_topk(indices, 3) is indices
    assert pad_topk(indices[:, :0], 64).shape == (1, 0)


def prefill(**changes: torch.Tensor) -> object:
    given = {
        "q": torch.ones(2, 4, 576),
        "kv": torch.ones(5, 1, 576),
        "indices": torch.zeros(2, 1, 8, dtype=torch.int32),
    } | changes
    return sparse_mla_prefill(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


def decode(**changes: torch.Tensor) -> object:
    given = {
        "q": torch.ones(2, 1, 4, 576),
        "cache": caches.poisoned(1, 64, 1, 656),
        "indices": torch.zeros(2, 1, 8, dtype=torch.int32),
    } | changes
    return sparse_mla_decode(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


MISUSE = {
    "prefill: q of one token": (prefill, {"q": torch.ones(4, 576)}, r"q has shape \[4, 576\], expected \[\*, \*, \*\]"),
    "prefill: q in half": (prefill, {"q": torch.ones(2, 4, 576).half()}, "q has dtype torch.float16"),
    "prefill: kv without its head": (prefill, {"kv": torch.ones(5, 576)}, r"kv has shape \[5, 576\]"),
    "prefill: kv of another dtype": (prefill, {"kv": torch.ones(5, 1, 576).bfloat16()}, "kv has dtype torch.bfloat16"),
    "prefill: kv of 512": (prefill, {"kv": torch.ones(5, 1, 512)}, r"expected \[\*, 1, 576\]"),
    "prefill: byte cache of another record": (
        prefill,
        {"kv": caches.poisoned(1, 64, 1, 640)},
        r"kv has shape \[1, 64, 1, 640\], expected \[\*, \*, 1, 656\]",
    ),
    "prefill: int64 indices": (
        prefill,
        {"indices": torch.zeros(2, 1, 8, dtype=torch.int64)},
        "indices has dtype torch.int64, expected torch.int32",
    ),
    "prefill: a topk_length too few": (
        prefill,
        {"topk_length": torch.zeros(1, dtype=torch.int32)},
        r"topk_length has shape \[1\], expected \[2\]",
    ),
    "prefill: bf16 sink": (prefill, {"attn_sink": torch.ones(4).bfloat16()}, "attn_sink has dtype torch.bfloat16"),
    "prefill: sink of another head count": (
        prefill,
        {"attn_sink": torch.ones(8)},
        r"attn_sink has shape \[8\], expected \[4\]",
    ),
    "decode: q without s_q": (decode, {"q": torch.ones(2, 4, 576)}, r"q has shape \[2, 4, 576\]"),
    "decode: bf16 cache for fp32 q": (decode, {"cache": torch.ones(1, 64, 1, 576).bfloat16()}, "cache has dtype"),
    "decode: cache of 576 bytes": (decode, {"cache": caches.poisoned(1, 64, 1, 576)}, r"expected \[\*, \*, 1, 656\]"),
    "decode: indices of one sequence": (
        decode,
        {"indices": torch.zeros(1, 1, 8, dtype=torch.int32)},
        r"indices has shape \[1, 1, 8\], expected \[2, 1, \*\]",
    ),
    "decode: indices elsewhere": (
        decode,
        {"indices": torch.zeros(2, 1, 8, dtype=torch.int32, device="meta")},
        "indices is on meta, expected cpu",
    ),
}


@pytest.mark.parametrize(("call", "changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(call: object, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)  # type: ignore[operator]
