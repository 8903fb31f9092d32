"""Dense attention: multi-head prefill against torch's SDPA in float64, paged decode against a float64 softmax."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels import dense_mla
from deepseek_v32.kernels.dense_mla import dense_mla_decode, mha_prefill, paged_mla_decode_h16
from support.attention import attend
from support.backends import Backend
from support.compare import BF16_OUT, FP32_OUT, LSE, Tolerance, assert_close

SCALE = 0.1352337788608801  # the released model's
OUT = {torch.float32: FP32_OUT, torch.bfloat16: BF16_OUT, torch.float16: Tolerance(2e-3, 2e-3, 7e-6)}
KEY_SIZE = {
    torch.float32: 1.0,
    torch.bfloat16: 0.1,
    torch.float16: 1.0,
}  # the tolerance of bf16 outputs is for such keys
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def by_dtype(*dtypes: torch.dtype) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("dtype", dtypes, ids=[NAMES[dtype] for dtype in dtypes])


def int32(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


PREFILL = {  # T, S, H, D, Dv
    "one token": (1, 1, 1, 192, 128),
    "whole prompt": (9, 9, 16, 192, 128),
    "chunk after a cached prefix": (5, 70, 4, 192, 128),
    "last token of a long context": (1, 129, 4, 192, 128),
    "a tile and one": (65, 65, 2, 192, 128),
    "small dims, value wider than key": (6, 8, 3, 24, 40),
    "more queries than one tile, few of them new": (70, 300, 2, 192, 128),
}


@by_dtype(torch.float32, torch.bfloat16)
@pytest.mark.parametrize("masked", [False, True], ids=["causal", "mask"])
@pytest.mark.parametrize(("tokens", "cached", "heads", "width", "value"), PREFILL.values(), ids=PREFILL.keys())
def test_mha_prefill(
    backend: Backend,
    tokens: int,
    cached: int,
    heads: int,
    width: int,
    value: int,
    masked: bool,
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(rows, heads, dims, generator=generator).to(dtype)
        for rows, dims in ((tokens, width), (cached, width), (cached, value))
    )
    v *= KEY_SIZE[dtype]
    # Query i is token S - T + i of the context, so it attends to S - T + i + 1 keys.
    allowed = torch.tensor([[s <= cached - tokens + t for s in range(cached)] for t in range(tokens)])
    if masked:
        allowed &= torch.rand(tokens, cached, generator=generator) < 0.5
        allowed[:, 0] = True
    result = backend.run(mha_prefill, q, k, v, SCALE, allowed if masked else None)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().transpose(0, 1) for x in (q, k, v)), attn_mask=allowed, scale=SCALE
    ).transpose(0, 1)
    assert result.dtype == dtype
    assert_close(result, expected.numpy(), OUT[dtype])


@by_dtype(torch.float32, torch.bfloat16)
def test_mha_prefill_of_a_row_that_may_see_nothing(backend: Backend, dtype: torch.dtype) -> None:
    q, k, v = (torch.ones(rows, 2, width, dtype=dtype) for rows, width in ((2, 192), (3, 192), (3, 128)))
    mask = torch.tensor([[False, False, False], [True, False, True]])
    result = backend.run(mha_prefill, q, k, v, SCALE, mask)
    assert result[0].eq(0).all()
    torch.testing.assert_close(result[1], torch.ones(2, 128, dtype=dtype))


def test_mha_prefill_over_strided_values(backend: Backend) -> None:
    """Values that are strided because one projection makes keys and values, as in the model."""
    generator = torch.Generator().manual_seed(1)
    q, k, both = (torch.randn(n, 4, d, generator=generator).bfloat16() for n, d in ((40, 192), (100, 192), (100, 256)))
    v = both.mul_(KEY_SIZE[torch.bfloat16])[..., 128:]
    allowed = torch.arange(100) <= torch.arange(60, 100)[:, None]
    result = backend.run(mha_prefill, q, k, v, SCALE)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.double().transpose(0, 1) for x in (q, k, v)), attn_mask=allowed, scale=SCALE
    ).transpose(0, 1)
    assert_close(result, expected.numpy(), BF16_OUT)


def test_mha_prefill_without_queries(backend: Backend) -> None:
    q, k, v = torch.ones(0, 2, 192), torch.ones(3, 2, 192), torch.ones(3, 2, 128)
    assert backend.run(mha_prefill, q, k, v, SCALE).shape == (0, 2, 128)


DECODE = {  # lengths (new tokens included), s_q, H, page size
    "one of everything": ([1], 1, 1, 64),
    "ragged around a page": ([63, 64, 65, 129], 1, 16, 64),
    "two new tokens": ([2, 66, 64], 2, 16, 64),
    "zero length between others": ([5, 0, 70], 1, 16, 64),
    "page size 1": ([3, 1], 1, 4, 1),
    "128 heads": ([100], 1, 128, 64),
    "as many new tokens as context": ([3], 3, 4, 64),
    "fewer keys than new tokens": ([1, 0], 3, 4, 64),  # the first rows have no keys
    "a context in many runs, others in few": ([1500, 3, 700], 2, 16, 64),
    "more rows than a tile": ([200, 70], 2, 40, 64),
}


@by_dtype(torch.float32, torch.bfloat16, torch.float16)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize(("lengths", "new", "heads", "page"), DECODE.values(), ids=DECODE.keys())
def test_dense_decode(
    backend: Backend, lengths: list[int], new: int, heads: int, page: int, causal: bool, dtype: torch.dtype
) -> None:
    """Pages are in shuffled order. Pages that no sequence owns are NaN, and unused columns of the block table name such a page."""
    rng = np.random.default_rng(0)
    q = torch.from_numpy(rng.standard_normal((len(lengths), new, heads, 576))).to(dtype)
    counts = [-(-length // page) for length in lengths]
    free = rng.permutation(range(1, 1 + sum(counts))).tolist()
    cache = torch.full((1 + sum(counts), page, 1, 576), math.nan, dtype=dtype)
    table = torch.zeros(len(lengths), max(1, *counts), dtype=torch.int32)
    contexts = []
    for b, length in enumerate(lengths):
        values = torch.from_numpy(rng.standard_normal((length, 576)) * KEY_SIZE[dtype]).to(dtype)
        for s in range(length):
            if s % page == 0:
                table[b, s // page] = free.pop()
            cache[int(table[b, s // page]), s % page, 0] = values[s]
        contexts.append(values.double().numpy())
    out, lse = backend.run(dense_mla_decode, q, cache, table, int32(lengths), SCALE, causal=causal)
    assert out.dtype == dtype and out.shape == (len(lengths), new, heads, 512)
    assert lse.dtype == torch.float32 and lse.shape == (len(lengths), heads, new)
    for b, length in enumerate(lengths):
        for i in range(new):
            seen = max(length - new + i + 1, 0) if causal else length
            expected = attend(q[b, i].double().numpy(), contexts[b][:seen], SCALE, 512)
            assert_close(out[b, i], expected[0], OUT[dtype], "out")
            assert_close(lse[b, :, i], expected[2], LSE, "lse")


H16 = {  # lengths
    "one": [1],
    "ragged": [3, 64, 130],
    "empty sequences at both ends and between": [0, 5, 0, 0, 2, 0],
    "only empty": [0, 0],
}


@by_dtype(torch.float32, torch.bfloat16)
@pytest.mark.parametrize("lengths", H16.values(), ids=H16.keys())
def test_h16(backend: Backend, lengths: list[int], dtype: torch.dtype) -> None:
    """The logsumexp has base 2. Two sequences may share a page."""
    rng = np.random.default_rng(1)
    pages = 150
    ckv = torch.from_numpy(rng.standard_normal((pages, 1, 512))).to(dtype)
    kpe = torch.from_numpy(rng.standard_normal((pages, 1, 64))).to(dtype)
    q_nope = torch.from_numpy(rng.standard_normal((len(lengths), 16, 512))).to(dtype)
    q_pe = torch.from_numpy(rng.standard_normal((len(lengths), 16, 64))).to(dtype)
    owned = [rng.permutation(np.arange(0, pages, 2))[:length] for length in lengths]  # even pages, shared between rows
    owned = [
        rng.permutation(pages)[:length] if length > 75 else row for length, row in zip(lengths, owned, strict=True)
    ]
    used = {int(page) for row in owned for page in row}
    for page in set(range(pages)) - used:
        ckv[page], kpe[page] = math.nan, math.nan
    output, lse = backend.run(
        paged_mla_decode_h16,
        q_nope,
        q_pe,
        ckv,
        kpe,
        int32(np.cumsum([0, *lengths]).tolist()),
        int32([int(page) for row in owned for page in row]),
        SCALE,
    )
    assert output.dtype == dtype and output.shape == q_nope.shape and lse.dtype == torch.float32
    rows = torch.cat([ckv, kpe], dim=-1)[:, 0].double().numpy()
    for b, row in enumerate(owned):
        q = torch.cat([q_nope[b], q_pe[b]], dim=-1).double().numpy()
        out, _, natural = attend(q, rows[row], SCALE, 512)
        assert_close(output[b], out, FP32_OUT if dtype == torch.float32 else Tolerance(1e-2, 1e-2), "output")
        assert_close(lse[b], natural * math.log2(math.e), LSE, "lse")


def test_h16_of_one_key_by_hand(backend: Backend) -> None:
    """With one key the output is its latent, and lse is its score times log2 e."""
    ones = torch.ones
    output, lse = backend.run(
        paged_mla_decode_h16,
        ones(1, 16, 512),
        ones(1, 16, 64),
        ones(3, 1, 512) * torch.tensor([5.0, 7.0, 9.0])[:, None, None],
        ones(3, 1, 64),
        int32([0, 1]),
        int32([1]),
        0.001,
    )
    assert output.eq(7).all()
    assert_close(lse, np.full((1, 16), (7 * 512 + 64) * 0.001 / math.log(2)), LSE)


def prefill(**changes: torch.Tensor) -> object:
    given = {"q": torch.ones(2, 4, 192), "k": torch.ones(3, 4, 192), "v": torch.ones(3, 4, 128)} | changes
    return mha_prefill(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


def decode(**changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = {
        "q": torch.ones(2, 1, 4, 576),
        "cache": torch.ones(1, 64, 1, 576),
        "block_table": torch.zeros(2, 1, dtype=torch.int32),
        "cache_seqlens": torch.ones(2, dtype=torch.int32),
    } | changes
    return dense_mla_decode(softmax_scale=SCALE, **given)  # type: ignore[arg-type]


def h16(**changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = {
        "q_nope": torch.ones(2, 16, 512),
        "q_pe": torch.ones(2, 16, 64),
        "ckv_cache": torch.ones(3, 1, 512),
        "kpe_cache": torch.ones(3, 1, 64),
        "kv_indptr": int32([0, 1, 2]),
        "kv_indices": int32([0, 1]),
    } | changes
    return paged_mla_decode_h16(sm_scale=SCALE, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch, new", [(0, 1), (2, 0)], ids=["no sequence", "no new token"])
def test_no_queries_launch_nothing(batch: int, new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launchers divide by the number of queries."""
    monkeypatch.setattr(dense_mla, "choose", lambda *_: pytest.fail("an implementation is chosen"))
    table, lengths = torch.zeros(batch, 1, dtype=torch.int32), torch.ones(batch, dtype=torch.int32)
    out, lse = decode(q=torch.ones(batch, new, 4, 576), block_table=table, cache_seqlens=lengths)
    assert out.shape == (batch, new, 4, 512) and lse.shape == (batch, 4, new)
    output, lse = h16(q_nope=torch.ones(0, 16, 512), q_pe=torch.ones(0, 16, 64), kv_indptr=int32([0]))
    assert output.shape == (0, 16, 512) and lse.shape == (0, 16)


MISUSE = {
    "prefill: fewer keys than queries": (
        prefill,
        {"k": torch.ones(1, 4, 192), "v": torch.ones(1, 4, 128)},
        "k has 1 tokens; expected at least q's 2",
    ),
    "prefill: heads differ": (
        prefill,
        {"k": torch.ones(3, 1, 192)},
        r"k has shape \[3, 1, 192\]; expected \[\*, 4, 192\]",
    ),
    "prefill: v of another length": (
        prefill,
        {"v": torch.ones(2, 4, 128)},
        r"v has shape \[2, 4, 128\]; expected \[3, 4, \*\]",
    ),
    "prefill: v of another dtype": (prefill, {"v": torch.ones(3, 4, 128).bfloat16()}, "v has dtype torch.bfloat16"),
    "prefill: integer mask": (prefill, {"mask": torch.ones(2, 3, dtype=torch.int32)}, "mask has dtype torch.int32"),
    "prefill: transposed mask": (
        prefill,
        {"mask": torch.ones(3, 2) > 0},
        r"mask has shape \[3, 2\]; expected \[2, 3\]",
    ),
    "decode: byte cache": (
        decode,
        {"cache": torch.zeros(1, 64, 1, 576, dtype=torch.uint8)},
        "cache has dtype torch.uint8; expected torch.float32",
    ),
    "decode: cache of 512": (decode, {"cache": torch.ones(1, 64, 1, 512)}, r"expected \[\*, \*, 1, 576\]"),
    "decode: int64 table": (decode, {"block_table": torch.zeros(2, 1, dtype=torch.int64)}, "block_table has dtype"),
    "decode: a length too few": (
        decode,
        {"cache_seqlens": int32([1])},
        r"cache_seqlens has shape \[1\]; expected \[2\]",
    ),
    "h16: 32 heads": (
        h16,
        {"q_nope": torch.ones(2, 32, 512)},
        r"q_nope has shape \[2, 32, 512\]; expected \[\*, 16, 512\]",
    ),
    "h16: rope elsewhere": (h16, {"q_pe": torch.ones(2, 16, 64, device="meta")}, "q_pe is on meta; expected cpu"),
    "h16: pages of 64": (
        h16,
        {"ckv_cache": torch.ones(3, 64, 512)},
        r"ckv_cache has shape .*; expected \[\*, 1, 512\]",
    ),
    "h16: fewer rope pages": (
        h16,
        {"kpe_cache": torch.ones(2, 1, 64)},
        r"kpe_cache has shape .*; expected \[3, 1, 64\]",
    ),
    "h16: indptr without its end": (h16, {"kv_indptr": int32([0, 1])}, r"kv_indptr has shape \[2\]; expected \[3\]"),
    "h16: int64 indices": (h16, {"kv_indices": torch.zeros(2, dtype=torch.int64)}, "kv_indices has dtype torch.int64"),
}


@pytest.mark.parametrize(("call", "changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(call: object, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)  # type: ignore[operator]
