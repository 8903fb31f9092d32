"""The paged cache of index keys, byte for byte, as test_cache_write.py does it for latents."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_index_keys, write_index_cache
from support import caches, e4m3
from support.backends import Backend
from support.caches import COUNTS, ONE_SLOT, SLOTS, scattered
from support.compare import FP32, Tolerance, assert_close
from support.rope import rotate_half_split, rotate_interleaved


@pytest.mark.parametrize("tokens", COUNTS, ids=lambda tokens: f"{tokens} tokens")
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
    # bf16 rounds each of the 64 rotated terms, and the sum.
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
    """Keys are at p*8448 + o*128, scales at p*8448 + 8192 + o*4; all other bytes are still poison."""
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
        assert wrong.sum() <= 1  # an fp32 sum may be on the other side of a midpoint
        assert (np.abs(flat[key : key + 128][wrong].astype(int) - codes[token][wrong]) <= 1).all()
    assert (flat[untouched] == caches.POISON).all()


def test_index_bytes_exactly(backend: Backend) -> None:
    """A key with sqrt(128) in one dim becomes plus and minus one in all dims, whose bytes are known.

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
