"""A NaN or an infinity in a quantisation group: the scale and all 128 values become NaN, in every operation that quantises."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cache_write import gather_index_keys, gather_latents, write_index_cache, write_latent_cache
from deepseek_v32.kernels.hadamard import rotate_quantize
from deepseek_v32.kernels.kv_up_projection import expand_quantize
from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm_quantize, swiglu_quantize
from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from support import caches, e4m3
from support.backends import Backend

Groups = tuple[np.ndarray, np.ndarray]  # codes [rows, groups, 128] and scales [rows, groups]

# NaNs of either sign, with the smallest payload and as CUDA writes it (all ones), and both infinities, as bf16 bits.
POISONS = {"nan": 0x7FC0, "-nan": 0xFFC0, "nan 1": 0x7F81, "nan of ones": 0x7FFF, "inf": 0x7F80, "-inf": 0xFF80}


def poison(name: str, dtype: torch.dtype) -> torch.Tensor:
    """The poison as a scalar of fp32 or bf16, bit by bit."""
    bits = np.array([POISONS[name]], np.uint16)
    if dtype == torch.bfloat16:
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)[0]
    wide = (bits.astype(np.uint32) << 16) | (0xFFFF if name == "nan of ones" else 0)
    return torch.from_numpy(wide.view(np.int32)).view(torch.float32)[0]


def seeded(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def grouped(values: torch.Tensor, scales: torch.Tensor) -> Groups:
    codes = e4m3.codes_of(values)
    return codes.reshape(-1, scales.shape[-1], codes.shape[-1] // scales.shape[-1]), scales.flatten(0, -2).numpy()


def blocks_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    x = seeded(3, 384, dtype=dtype, seed=1)
    if bad is not None:
        x[1, 200] = bad
    return grouped(*run(quantize_blocks, x, ue8m0))


def swiglu_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    x = seeded(3, 768, dtype=dtype, seed=2)
    if bad is not None:
        x[1, 384 + 200] = bad  # of the upper half; its gate is finite and not zero
    return grouped(*run(swiglu_quantize, x, ue8m0))


def norm_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    """The weight of one column; a NaN in a row would make the whole row NaN."""
    weight = seeded(384, dtype=torch.float32, seed=3)
    rows = seeded(3, 384, dtype=dtype, seed=4)
    rows[0], rows[2] = 0, 0  # zeros times a poison are NaN, too
    if bad is not None:
        weight[200] = bad.float()
    quantized = run(rms_norm_quantize, rows, weight, 1e-6, ue8m0, residual=rows).quantized
    return grouped(quantized.values, quantized.scales)


def rotate_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    """A head of a token is one group."""
    x, angles = seeded(1, 9, 128, dtype=dtype, seed=5), seeded(1, 32, dtype=torch.float32, seed=6)
    weights = torch.ones(1, 9)
    if bad is not None:
        x[0, 4, 100] = bad
    values, scales, weighted = run(rotate_quantize, x, angles.cos(), angles.sin(), False, ue8m0, weights)
    assert torch.equal(weighted.isnan(), scales[..., 0].isnan())
    codes, found = grouped(values.flatten(0, 1), scales.flatten(0, 1))
    return codes.reshape(3, 3, 128), found.reshape(3, 3)


def expand_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    """A head's values are one group of a token."""
    latents, wv = seeded(3, 3, 512, dtype=dtype, seed=7), seeded(3, 128, 512, dtype=dtype, seed=8)
    if bad is not None:
        latents[1, 1, 77] = bad
    return grouped(*run(expand_quantize, latents, wv, ue8m0))


def latent_cache_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    kv, weight = seeded(3, 384 + 64, dtype=dtype, seed=9), seeded(384, dtype=torch.float32, seed=10)
    angles, cache = seeded(3, 32, dtype=torch.float32, seed=11), caches.poisoned(2, 64, 1, 384 + 12 + 128)
    if bad is not None:
        weight[200] = bad.float()
    slots = torch.tensor([64, 3, 127])
    run(write_latent_cache, kv, weight, 1e-6, angles.cos(), angles.sin(), cache, slots)
    records = cache.view(128, -1)[slots].numpy()
    return records[:, :384].reshape(3, 3, 128), np.ascontiguousarray(records[:, 384:396]).view("<f4")


def index_cache_case(run: Callable, dtype: torch.dtype, ue8m0: bool, bad: torch.Tensor | None) -> Groups:
    keys, angles = seeded(9, 128, dtype=dtype, seed=12), seeded(9, 32, dtype=torch.float32, seed=13)
    cache = caches.poisoned(1, 64, 1, 132)
    if bad is not None:
        keys[4, 100] = bad
    slots = torch.arange(9) * 5
    run(write_index_cache, keys, angles.cos(), angles.sin(), cache, slots)
    values, scales = gather_index_keys(cache, slots)
    assert scales is not None
    return e4m3.codes_of(values).reshape(3, 3, 128), scales.numpy().reshape(3, 3)


# name: (case, the groups [rows, groups] that hold the poison, whether plain scales exist)
ONE = [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
COLUMN = [[0, 1, 0]] * 3
QUANTISERS = {
    "quantize_blocks": (blocks_case, ONE, True),
    "swiglu_quantize": (swiglu_case, ONE, True),
    "rms_norm_quantize": (norm_case, COLUMN, True),
    "rotate_quantize": (rotate_case, ONE, True),
    "expand_quantize": (expand_case, ONE, True),
    "write_latent_cache": (latent_cache_case, COLUMN, False),
    "write_index_cache": (index_cache_case, ONE, False),
}
CASES = [
    pytest.param(case, groups, ue8m0, id=f"{name}-{'ue8m0' if ue8m0 else 'plain scale'}")
    for name, (case, groups, plain) in QUANTISERS.items()
    for ue8m0 in ((True, False) if plain else (True,))
]


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("case", "groups", "ue8m0"), CASES)
def test_a_poisoned_group(
    backend: Backend, case: Callable[..., Groups], groups: list[list[int]], ue8m0: bool, dtype: torch.dtype, name: str
) -> None:
    """e4m3 and ue8m0 have no infinity, so infinities are NaN, too. Every other group has the bits that it has without."""
    bad = np.array(groups, bool)
    codes, scales = case(backend.run, dtype, ue8m0, poison(name, dtype))
    clean_codes, clean_scales = case(backend.run, dtype, ue8m0, None)
    assert np.isfinite(clean_scales).all()
    np.testing.assert_array_equal(np.isnan(scales), bad)
    assert ((codes[bad] & 0x7F) == e4m3.NAN_CODE).all()
    np.testing.assert_array_equal(scales[~bad], clean_scales[~bad])
    np.testing.assert_array_equal(codes[~bad], clean_codes[~bad])
    as_e8m0 = torch.from_numpy(scales[bad].copy()).to(torch.float8_e8m0fnu).view(torch.uint8)
    assert as_e8m0.eq(0xFF).all()  # the NaN of e8m0, also for readers that take only the exponent's bits


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
def test_a_poisoned_block_of_weights(ue8m0: bool, name: str) -> None:
    weight = seeded(200, 300, dtype=torch.float32, seed=14)
    clean = quantize_weight(weight, ue8m0)
    weight[130, 140] = poison(name, torch.float32)
    values, scales = quantize_weight(weight, ue8m0)
    assert scales.isnan().tolist() == [[False, False, False], [False, True, False]]
    assert values[128:, 128:256].float().isnan().all()
    assert torch.equal(values.float().isnan().sum(), torch.tensor(72 * 128))
    assert torch.equal(values[:128].view(torch.uint8), clean.values[:128].view(torch.uint8))


@pytest.mark.parametrize("heads", [16, 64, 128], ids=lambda heads: f"{heads} heads")
def test_a_poisoned_latent_reaches_every_query_that_reads_it(backend: Backend, heads: int) -> None:
    """What a cache writer made of a NaN is NaN to the reader of the latents and to attention, and to no one else."""
    kv = seeded(128, 576, dtype=torch.bfloat16, seed=15)
    kv[5, 300] = math.nan
    angles, cache = seeded(128, 32, dtype=torch.float32, seed=16), caches.poisoned(2, 64, 1, 656)
    slots = torch.arange(128)
    backend.run(write_latent_cache, kv, torch.ones(512), 1e-6, angles.cos(), angles.sin(), cache, slots)
    latents = backend.run(gather_latents, cache, slots, 512, torch.bfloat16)[:, :512]
    assert latents[5].isnan().all() and latents.isnan().any(1).sum() == 1
    q = seeded(2, 1, heads, 576, dtype=torch.bfloat16, seed=17)
    indices = torch.arange(128, dtype=torch.int32).repeat(2, 1, 1)
    indices[1, 0, 5] = -1
    out, _ = backend.run(sparse_mla_decode, q, cache, indices, 0.1)
    assert out[0].isnan().all() and out[1].isfinite().all()
