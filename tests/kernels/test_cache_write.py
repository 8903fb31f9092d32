"""The paged caches, byte for byte: what is written where, that nothing else changes, and what reads back."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_write import (
    gather_index_keys,
    gather_latents,
    index_record_bytes,
    latent_record_bytes,
    write_index_cache,
    write_latent_cache,
)
from support import caches, e4m3
from support.backends import Backend
from support.compare import FP32, Tolerance, assert_close
from support.rope import rotate_half_split, rotate_interleaved

# first and last of the first page, first of the second, one inside the last, not in order
SLOTS = [64, 0, 63, 191, 130]
ONE_SLOT = [127]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def test_record_sizes() -> None:
    assert latent_record_bytes(512, 64) == 656
    assert index_record_bytes(128) == 132


def exact_latents(tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """kv [T, 576] whose norm is exact, the norm's weight [512], and the normed latents [T, 512].

    Token t has values 0 and 2 * 2^t, a quarter of them non-zero, so its root mean square is exactly 2^t.
    """
    rng = np.random.default_rng(5)
    pattern = np.zeros((tokens, 512))
    for token in range(tokens):
        pattern[token, rng.permutation(512)[:128]] = rng.choice([-2.0, 2.0], 128)
    weight = caches.to_bf16(rng.standard_normal(512) * np.repeat([1e-6, 1.0, 30.0, 448.0], 128))
    kv = np.concatenate([pattern * 2.0 ** np.arange(tokens)[:, None], rng.integers(-8, 9, (tokens, 64))], axis=1)
    return kv, weight, pattern * weight


def exact_angles(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [T, 32] in eighths: integers up to 8 turned by them are exact in bf16."""
    rng = np.random.default_rng(6)
    return rng.integers(-8, 9, (tokens, 32)) / 8, rng.integers(-8, 9, (tokens, 32)) / 8


def fp32(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).float()


@DTYPES
@pytest.mark.parametrize("slots", [SLOTS, ONE_SLOT, []], ids=["scattered", "one", "none"])
def test_latent_bytes(backend: Backend, dtype: torch.dtype, slots: list[int]) -> None:
    """All 3 x 64 x 656 bytes: the named slots hold exactly the hand-made record, the rest is untouched poison."""
    kv, weight, latents = exact_latents(len(slots))
    cos, sin = exact_angles(len(slots))
    cache = caches.poisoned(3, 64, 1, 656)
    backend.run(
        write_latent_cache,
        fp32(kv).to(dtype),
        fp32(weight),
        0.0,
        fp32(cos),
        fp32(sin),
        cache,
        torch.tensor(slots).long(),
    )
    expected = caches.poisoned(3, 64, 1, 656)
    if slots:
        codes, scales = e4m3.quantize(latents.astype(np.float32))
        rope = rotate_interleaved(kv[:, 512:], cos, sin)
        for token, slot in enumerate(slots):
            caches.put_latent(expected, slot, codes[token], scales[token], rope[token])
    assert torch.equal(cache, expected)


def random_latent_inputs(tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    kv = torch.randn(tokens, 576, generator=generator) * 10.0 ** torch.arange(-2, tokens - 2)[:, None]
    weight = torch.rand(512, generator=generator) + 0.5
    angles = 20 * torch.randn(tokens, 32, generator=generator)
    return kv.to(dtype), weight, angles.cos(), angles.sin()


def exact_rows(kv: torch.Tensor, weight: torch.Tensor, eps: float, cos: torch.Tensor, sin: torch.Tensor) -> np.ndarray:
    wide = kv.double().numpy()
    latent = wide[:, :512] / np.sqrt((wide[:, :512] ** 2).mean(1, keepdims=True) + eps) * weight.double().numpy()
    rope = rotate_interleaved(wide[:, 512:], cos.double().numpy(), sin.double().numpy())
    return np.concatenate([latent, rope], axis=1)


@DTYPES
def test_latent_of_random_values(backend: Backend, dtype: torch.dtype) -> None:
    """Any values: scales by the exact norm, codes within one of the exact ones, eps where it matters (tiny first rows)."""
    kv, weight, cos, sin = random_latent_inputs(len(SLOTS), dtype)
    cache = caches.poisoned(3, 64, 1, 656)
    backend.run(write_latent_cache, kv, weight, 1e-4, cos, sin, cache, torch.tensor(SLOTS))
    exact = exact_rows(kv, weight, 1e-4, cos, sin)
    codes, scales = e4m3.quantize(exact[:, :512].astype(np.float32))
    for token, slot in enumerate(SLOTS):
        record = cache.view(-1, 656)[slot].numpy()
        np.testing.assert_array_equal(record[512:528].view("<f4"), scales[token])
        wrong = record[:512] != codes[token]
        assert wrong.mean() <= (0.002 if dtype == torch.float32 else 0.06)  # bf16 rounds the norm before e4m3 does
        assert (np.abs(record[:512][wrong].astype(int) - codes[token][wrong]) == 1).all()
        rope = torch.from_numpy(record[528:].copy()).view(torch.bfloat16)
        # half a unit in the last place, and a little for fp32 sums that cancel
        assert_close(rope, exact[token, 512:], Tolerance(2.0**-8, 1e-6 * np.abs(exact[token, 512:]).max(), 1e-4))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, FP32), (torch.bfloat16, Tolerance(2.0**-7, 1e-5, 1e-5))],
    ids=["fp32", "bf16"],
)
def test_latent_rows_of_a_plain_cache(backend: Backend, dtype: torch.dtype, tolerance: Tolerance) -> None:
    kv, weight, cos, sin = random_latent_inputs(len(SLOTS), dtype)
    cache = torch.full((3, 64, 1, 576), math.nan, dtype=dtype)
    backend.run(write_latent_cache, kv, weight, 1e-6, cos, sin, cache, torch.tensor(SLOTS))
    assert_close(cache.view(-1, 576)[SLOTS], exact_rows(kv, weight, 1e-6, cos, sin), tolerance)
    others = [slot for slot in range(192) if slot not in SLOTS]
    assert cache.view(-1, 576)[others].isnan().all()


def test_a_wide_projection_slice_is_taken_by_its_stride(backend: Backend) -> None:
    """kv as a slice of a fused projection's output, poisoned beside it."""
    kv, weight, cos, sin = random_latent_inputs(2, torch.bfloat16)
    wide = torch.full((2, 1000), math.nan, dtype=torch.bfloat16)
    wide[:, 100:676] = kv
    written = []
    for argument in (wide[:, 100:676], kv):
        cache = caches.poisoned(1, 64, 1, 656)
        backend.run(write_latent_cache, argument, weight, 1e-6, cos, sin, cache, torch.tensor([3, 5]))
        written.append(cache)
    assert torch.equal(*written)


@pytest.mark.parametrize("powers_of_two", [True, False], ids=["ue8m0 scales", "plain amax/448 scales"])
@pytest.mark.parametrize("page", [64, 1, 69], ids=lambda page: f"page {page}")
def test_gather_latents(backend: Backend, powers_of_two: bool, page: int) -> None:
    codes, scales, rope, rows = caches.random_latents(np.random.default_rng(8), 5, powers_of_two)
    cache = caches.poisoned(max(3, 200 // page), page, 1, 656)
    for token, slot in enumerate(SLOTS):
        caches.put_latent(cache, slot, codes[token], scales[token], rope[token])
    slots = torch.tensor([[*SLOTS], [*reversed(SLOTS)]])
    expected = np.stack([rows, rows[::-1]])
    assert_close(backend.run(gather_latents, cache, slots, 512, torch.float32), expected, Tolerance(2.0**-23, 0.0))
    result = backend.run(gather_latents, cache, slots, 512, torch.bfloat16)
    # e4m3 times a power of two is exact in bf16; a plain scale rounds the product, perhaps the scale too
    assert_close(result, expected, Tolerance(0.0 if powers_of_two else 2.01 * 2.0**-8, 0.0))


def test_smaller_dims(backend: Backend) -> None:
    """Other dims than the released model's: records that begin at 4 bytes only, a rope of no whole vector."""
    generator = torch.Generator().manual_seed(15)
    kv, weight = torch.randn(3, 262, generator=generator).bfloat16(), torch.rand(256, generator=generator) + 0.5
    angles = torch.randn(3, 3, generator=generator)
    cache = caches.poisoned(3, 2, 1, latent_record_bytes(256, 6))
    slots = torch.tensor([5, 0, 2])
    backend.run(write_latent_cache, kv, weight, 1e-6, angles.cos(), angles.sin(), cache, slots)
    got = backend.run(gather_latents, cache, slots, 256, torch.bfloat16)
    latents = kv[:, :256].double()
    latents = latents / (latents.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight
    rope = rotate_interleaved(
        kv[:, 256:].double().numpy(), angles.cos().double().numpy(), angles.sin().double().numpy()
    )
    assert_close(got[:, :256], latents.numpy(), Tolerance(2.0**-4 + 2.0**-7, 2e-5))
    assert_close(got[:, 256:], rope, Tolerance(2.0**-8, 1e-5))
    assert (cache.view(-1, 276)[[1, 3, 4]] == caches.POISON).all()


@DTYPES
def test_gather_latents_of_a_plain_cache(backend: Backend, dtype: torch.dtype) -> None:
    cache = torch.full((3, 64, 1, 576), math.nan, dtype=dtype)
    rows = torch.randn(5, 576, generator=torch.Generator().manual_seed(9)).to(dtype)
    cache.view(-1, 576)[SLOTS] = rows
    assert torch.equal(backend.run(gather_latents, cache, torch.tensor(SLOTS), 512, dtype), rows)


# one, few, a page, around two of them, a prefill chunk; pages and places in any order, with as many unused beside
TOKENS = pytest.mark.parametrize("tokens", [1, 3, 64, 127, 128, 4096], ids=lambda tokens: f"{tokens} tokens")


def scattered(tokens: int) -> tuple[torch.Tensor, int]:
    """Slots in no order, and how many pages they are of."""
    pages = -(-2 * tokens // 64)
    return torch.randperm(pages * 64, generator=torch.Generator().manual_seed(tokens))[:tokens], pages


@TOKENS
def test_latents_anywhere(backend: Backend, tokens: int) -> None:
    """Every token reads back as what its own norm and angles say; bytes of other slots stay poison."""
    generator = torch.Generator().manual_seed(13)
    kv = torch.randn(tokens, 576, generator=generator).bfloat16()
    weight = torch.rand(512, generator=generator) + 0.5
    angles = 20 * torch.randn(tokens, 32, generator=generator)
    slots, pages = scattered(tokens)
    cache = caches.poisoned(pages, 64, 1, 656)
    backend.run(write_latent_cache, kv, weight, 1e-6, angles.cos(), angles.sin(), cache, slots)
    got = backend.run(gather_latents, cache, slots, 512, torch.float32)
    exact = exact_rows(kv, weight, 1e-6, angles.cos(), angles.sin())
    # e4m3 keeps 2^-4 of a value and steps of 2^-10 scales; scales are at most amax / 224; bf16 rounded before
    assert_close(got[:, :512], exact[:, :512], Tolerance(2.0**-4 + 2.0**-7, 2.0**-10 * np.abs(exact).max() / 224))
    assert_close(got[:, 512:], exact[:, 512:], Tolerance(2.0**-8, 1e-5))
    others = torch.ones(pages * 64, dtype=torch.bool).scatter_(0, slots, False)
    assert (cache.view(-1, 656)[others] == caches.POISON).all()


@TOKENS
def test_index_keys_anywhere(backend: Backend, tokens: int) -> None:
    generator = torch.Generator().manual_seed(14)
    keys = torch.randn(tokens, 128, generator=generator).bfloat16()
    angles = 20 * torch.randn(tokens, 32, generator=generator)
    slots, pages = scattered(tokens)
    cache = caches.poisoned(pages, 64, 1, 132)
    backend.run(write_index_cache, keys, angles.cos(), angles.sin(), cache, slots)
    values, scales = gather_index_keys(cache, slots)
    assert scales is not None
    exact = hadamard(rotated_keys(keys, angles.cos(), angles.sin(), False))
    # bf16 rounds each of the 64 turned terms and the sum
    assert_close(values.float() * scales[:, None], exact, Tolerance(2.0**-4 + 2.0**-7, 0.03))
    others = torch.ones(pages * 64, dtype=torch.bool).scatter_(0, slots, False).view(pages, 64)
    flat = cache.view(pages, -1)
    assert (flat[:, :8192].unflatten(1, (64, 128))[others] == caches.POISON).all()
    assert (flat[:, 8192:].unflatten(1, (64, 4))[others] == caches.POISON).all()


def hadamard(x: np.ndarray) -> np.ndarray:
    width = x.shape[-1]
    signs = [[(-1.0) ** (i & j).bit_count() for j in range(width)] for i in range(width)]
    return x @ np.array(signs) * width**-0.5


def index_inputs(tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(10)
    keys = torch.randn(tokens, 128, generator=generator) * 10.0 ** torch.arange(-2, tokens - 2)[:, None]
    angles = 20 * torch.randn(tokens, 32, generator=generator)
    return keys.to(dtype), angles.cos(), angles.sin()


def rotated_keys(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> np.ndarray:
    rotate = rotate_interleaved if interleaved else rotate_half_split
    turned = keys.double().numpy()
    turned[:, :64] = rotate(turned[:, :64], cos.double().numpy(), sin.double().numpy())
    return turned


@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize("slots", [SLOTS, ONE_SLOT], ids=["scattered", "one"])
def test_index_bytes(backend: Backend, slots: list[int], interleaved: bool) -> None:
    """Keys at p*8448 + o*128, scales at p*8448 + 8192 + o*4; every other byte is untouched poison."""
    keys, cos, sin = index_inputs(len(slots), torch.float32)
    cache = caches.poisoned(3, 64, 1, 132)
    backend.run(write_index_cache, keys, cos, sin, cache, torch.tensor(slots), interleaved)
    codes, scales = e4m3.quantize(hadamard(rotated_keys(keys, cos, sin, interleaved)).astype(np.float32))
    flat = cache.view(-1).numpy()
    untouched = np.ones(flat.size, bool)
    for token, slot in enumerate(slots):
        page, offset = slot // 64, slot % 64
        key, scale = page * 8448 + offset * 128, page * 8448 + 8192 + offset * 4
        untouched[key : key + 128] = untouched[scale : scale + 4] = False
        assert flat[scale : scale + 4].view("<f4")[0] == scales[token, 0]
        wrong = flat[key : key + 128] != codes[token]
        assert wrong.sum() <= 1  # an fp32 sum may end on the other side of a midpoint
        assert (np.abs(flat[key : key + 128][wrong].astype(int) - codes[token][wrong]) <= 1).all()
    assert (flat[untouched] == caches.POISON).all()


def test_index_bytes_exactly(backend: Backend) -> None:
    """A key of sqrt(128) at one place rotates to plus and minus one everywhere: bytes known by heart.

    Scale 1/448 rounds up to 2^-8, so values are plus and minus 256: 0x78 and 0xF8.
    """
    keys = torch.zeros(2, 128)
    keys[0, 100], keys[1, 0] = 128**0.5, -(128**0.5)
    cache = caches.poisoned(2, 64, 1, 132)
    backend.run(write_index_cache, keys, torch.ones(2, 32), torch.zeros(2, 32), cache, torch.tensor([65, 2]))
    flat = cache.view(-1).tolist()
    assert flat[8448 + 128 : 8448 + 256] == [0xF8 if (j & 100).bit_count() % 2 else 0x78 for j in range(128)]
    assert flat[256:384] == [0xF8] * 128
    scale = [0x00, 0x00, 0x80, 0x3B]  # 2^-8, little-endian
    assert flat[8448 + 8192 + 4 : 8448 + 8192 + 8] == scale and flat[8192 + 8 : 8192 + 12] == scale
    assert sum(byte != 0xFF for byte in flat) == 2 * 132


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, FP32), (torch.bfloat16, Tolerance(2.0**-7, 1e-5, 1e-5))],
    ids=["fp32", "bf16"],
)
@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
def test_index_rows_of_a_plain_cache_are_not_hadamard_rotated(
    backend: Backend, dtype: torch.dtype, tolerance: Tolerance, interleaved: bool
) -> None:
    keys, cos, sin = index_inputs(len(SLOTS), dtype)
    cache = torch.full((3, 64, 1, 128), math.nan, dtype=dtype)
    backend.run(write_index_cache, keys, cos, sin, cache, torch.tensor(SLOTS), interleaved)
    assert_close(cache.view(-1, 128)[SLOTS], rotated_keys(keys, cos, sin, interleaved), tolerance)
    others = [slot for slot in range(192) if slot not in SLOTS]
    assert cache.view(-1, 128)[others].isnan().all()


def test_gather_index_keys() -> None:
    rng = np.random.default_rng(11)
    codes = e4m3.encode(rng.standard_normal((5, 128)) * 100)
    scales = (10.0 ** rng.uniform(-3, 3, 5)).astype(np.float32)
    cache = caches.poisoned(3, 64, 1, 132)
    for token, slot in enumerate(SLOTS):
        caches.put_index_key(cache, slot, codes[token], float(scales[token]))
    keys, k_scale = gather_index_keys(cache, torch.tensor(SLOTS))
    assert keys.dtype == torch.float8_e4m3fn and k_scale is not None
    np.testing.assert_array_equal(e4m3.codes_of(keys), codes)
    np.testing.assert_array_equal(k_scale.numpy(), scales)


def test_gather_index_keys_of_a_plain_cache() -> None:
    cache = torch.randn(3, 64, 1, 128, generator=torch.Generator().manual_seed(12))
    keys, k_scale = gather_index_keys(cache, torch.tensor(SLOTS))
    assert torch.equal(keys, cache.view(-1, 128)[SLOTS]) and k_scale is None


def latent(**changes: torch.Tensor) -> None:
    given = {
        "kv": torch.ones(2, 576),
        "norm_weight": torch.ones(512),
        "cos": torch.ones(2, 32),
        "sin": torch.ones(2, 32),
        "cache": caches.poisoned(1, 64, 1, 656),
        "slots": torch.tensor([0, 1]),
    } | changes
    write_latent_cache(given["kv"], given["norm_weight"], 1e-6, *(given[n] for n in ("cos", "sin", "cache", "slots")))


def index(**changes: torch.Tensor) -> None:
    given = {
        "keys": torch.ones(2, 128),
        "cos": torch.ones(2, 32),
        "sin": torch.ones(2, 32),
        "cache": caches.poisoned(1, 64, 1, 132),
        "slots": torch.tensor([0, 1]),
    } | changes
    write_index_cache(*given.values())


def gather(cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    return gather_latents(cache, slots, 512, torch.float32)


MISUSE = {
    "gather: int32 slots": (
        gather,
        {"cache": caches.poisoned(1, 64, 1, 656), "slots": torch.tensor([0]).int()},
        "slots has dtype torch.int32, expected torch.int64",
    ),
    "gather: cache without its head": (
        gather,
        {"cache": caches.poisoned(1, 64, 656), "slots": torch.tensor([0])},
        r"cache has shape \[1, 64, 656\], expected \[\*, \*, 1, \*\]",
    ),
    "gather keys: slots of two axes": (
        gather_index_keys,
        {"cache": caches.poisoned(1, 64, 1, 132), "slots": torch.tensor([[0]])},
        r"slots has shape \[1, 1\], expected \[\*\]",
    ),
    "kv too narrow": (latent, {"kv": torch.ones(2, 512)}, r"kv has shape \[2, 512\], expected \[\*, 576\]"),
    "int32 slots": (latent, {"slots": torch.tensor([0, 1]).int()}, "slots has dtype torch.int32, expected torch.int64"),
    "a slot too few": (latent, {"slots": torch.tensor([0])}, r"slots has shape \[1\], expected \[2\]"),
    "record of 576": (
        latent,
        {"cache": caches.poisoned(1, 64, 1, 576)},
        r"cache has shape .*, expected \[\*, \*, 1, 656\]",
    ),
    "bf16 cache of 656": (
        latent,
        {"cache": torch.ones(1, 64, 1, 656).bfloat16()},
        r"cache has shape .* expected \[\*, \*, 1, 576\]",
    ),
    "fp16 cache": (latent, {"cache": torch.ones(1, 64, 1, 576).half()}, "cache has dtype torch.float16"),
    "every second page": (latent, {"cache": caches.poisoned(4, 64, 1, 656)[::2]}, "cache has strides .* contiguous"),
    "FP8 latents of half a group": (
        latent,
        {"kv": torch.ones(2, 256), "norm_weight": torch.ones(192)},
        "norm_weight has 192 elements, an FP8 cache wants a multiple of 128",
    ),
    "FP8 keys of two groups": (
        index,
        {"keys": torch.ones(2, 256)},
        "keys has 256 columns, an FP8 cache wants a power of two up to 128",
    ),
    "cos of one token": (latent, {"cos": torch.ones(1, 32)}, r"cos has shape \[1, 32\], expected \[2, \*\]"),
    "bf16 sin": (latent, {"sin": torch.ones(2, 32).bfloat16()}, "sin has dtype torch.bfloat16"),
    "norm in bf16": (latent, {"norm_weight": torch.ones(512).bfloat16()}, "norm_weight has dtype torch.bfloat16"),
    "index cache of latents": (index, {"cache": caches.poisoned(1, 64, 1, 656)}, r"expected \[\*, \*, 1, 132\]"),
    "keys with a head axis": (index, {"keys": torch.ones(2, 1, 128)}, r"keys has shape \[2, 1, 128\]"),
    "index slots elsewhere": (
        index,
        {"slots": torch.ones(2, dtype=torch.int64, device="meta")},
        "slots is on meta, expected cpu",
    ),
}


@pytest.mark.parametrize(("write", "changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(write: object, changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(**changes)  # type: ignore[operator]
