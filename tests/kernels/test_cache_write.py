"""The paged latent cache, byte for byte: what is written and where, that nothing else changes, and what is read back."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_write import (
    gather_latents,
    index_record_bytes,
    latent_record_bytes,
    write_latent_cache,
)
from support import caches, e4m3
from support.backends import Backend
from support.caches import COUNTS, ONE_SLOT, SLOTS, scattered
from support.compare import FP32, Tolerance, assert_close
from support.rope import rotate_interleaved

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
    """cos and sin [T, 32] in eighths, so that the rotation of integers up to 8 is exact in bf16."""
    rng = np.random.default_rng(6)
    return rng.integers(-8, 9, (tokens, 32)) / 8, rng.integers(-8, 9, (tokens, 32)) / 8


def fp32(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).float()


@DTYPES
@pytest.mark.parametrize("slots", [SLOTS, ONE_SLOT, []], ids=["scattered", "one", "none"])
def test_latent_bytes(backend: Backend, dtype: torch.dtype, slots: list[int]) -> None:
    """All 3 x 64 x 656 bytes: the slots hold exactly the records made by hand, all other bytes are still poison."""
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
    """Random values: scales of the exact norm, codes within one of the exact ones; eps matters for the tiny first rows."""
    kv, weight, cos, sin = random_latent_inputs(len(SLOTS), dtype)
    cache = caches.poisoned(3, 64, 1, 656)
    backend.run(write_latent_cache, kv, weight, 1e-4, cos, sin, cache, torch.tensor(SLOTS))
    exact = exact_rows(kv, weight, 1e-4, cos, sin)
    codes, scales = e4m3.quantize(exact[:, :512].astype(np.float32))
    for token, slot in enumerate(SLOTS):
        record = cache.view(-1, 656)[slot].numpy()
        np.testing.assert_array_equal(record[512:528].view("<f4"), scales[token])
        wrong = record[:512] != codes[token]
        assert wrong.mean() <= (
            0.002 if dtype == torch.float32 else 0.06
        )  # bf16 rounds the norm before the rounding to e4m3
        assert (np.abs(record[:512][wrong].astype(int) - codes[token][wrong]) == 1).all()
        rope = torch.from_numpy(record[528:].copy()).view(torch.bfloat16)
        # Half a unit in the last place, and a little more for fp32 sums that cancel.
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
    """kv is a slice of the output of a fused projection, whose other columns are poison."""
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
    # e4m3 times a power of two is exact in bf16. With another scale the product is rounded, and perhaps the scale.
    assert_close(result, expected, Tolerance(0.0 if powers_of_two else 2.01 * 2.0**-8, 0.0))


def test_smaller_dims(backend: Backend) -> None:
    """Other dims than the released model's: records that begin at multiples of 4 bytes, RoPE dims that fill no vector."""
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


@pytest.mark.parametrize("tokens", COUNTS, ids=lambda tokens: f"{tokens} tokens")
def test_latents_anywhere(backend: Backend, tokens: int) -> None:
    """Every token is read back with its own norm and angles; the bytes of other slots are still poison."""
    generator = torch.Generator().manual_seed(13)
    kv = torch.randn(tokens, 576, generator=generator).bfloat16()
    weight = torch.rand(512, generator=generator) + 0.5
    angles = 20 * torch.randn(tokens, 32, generator=generator)
    slots, pages = scattered(tokens)
    cache = caches.poisoned(pages, 64, 1, 656)
    backend.run(write_latent_cache, kv, weight, 1e-6, angles.cos(), angles.sin(), cache, slots)
    got = backend.run(gather_latents, cache, slots, 512, torch.float32)
    exact = exact_rows(kv, weight, 1e-6, angles.cos(), angles.sin())
    # e4m3 has a relative error of 2^-4 and steps of 2^-10 scales; scales are at most amax / 224; bf16 was rounded before.
    assert_close(got[:, :512], exact[:, :512], Tolerance(2.0**-4 + 2.0**-7, 2.0**-10 * np.abs(exact).max() / 224))
    assert_close(got[:, 512:], exact[:, 512:], Tolerance(2.0**-8, 1e-5))
    others = torch.ones(pages * 64, dtype=torch.bool).scatter_(0, slots, False)
    assert (cache.view(-1, 656)[others] == caches.POISON).all()
