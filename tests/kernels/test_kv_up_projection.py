"""The two products of the absorbed form, against float64 and a quantiser written by hand."""

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cuda import kv_up_projection
from deepseek_v32.kernels.kv_up_projection import absorb_queries, expand_quantize, rotate_queries
from support import e4m3
from support.backends import Backend
from support.rope import rotate_interleaved

QUERIES = {  # tokens, heads, nope, rope, latent: released; a rank's heads; around the few; other sizes; nothing
    "one token": (1, 128, 128, 64, 512),
    "three tokens, a rank's heads": (3, 16, 128, 64, 512),
    "sixteen": (16, 4, 128, 64, 512),
    "seventeen": (17, 4, 128, 64, 512),
    "64": (64, 16, 128, 64, 512),
    "an odd number, several tiles for a CTA": (333, 70, 128, 64, 512),
    "other latent dims": (7, 3, 128, 64, 256),
    "other sizes": (5, 3, 24, 10, 40),
    "no token": (0, 2, 128, 64, 512),
}


def random(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("tokens", "heads", "nope", "rope", "latent"), QUERIES.values(), ids=QUERIES.keys())
def test_absorb(
    backend: Backend, tokens: int, heads: int, nope: int, rope: int, latent: int, dtype: torch.dtype
) -> None:
    """The weight is a part of kv_b_proj, in which rows of values lie between the heads; they are NaN here."""
    q = random(tokens, heads, nope + rope, dtype=dtype, seed=1)
    both = torch.full((heads, nope + 32, latent), float("nan"), dtype=dtype)
    both[:, :nope] = random(heads, nope, latent, dtype=dtype, seed=2)
    angles = random(tokens, rope // 2, dtype=torch.float32, seed=3) * 10
    result = backend.run(absorb_queries, q, angles.cos(), angles.sin(), both[:, :nope])
    assert result.dtype == dtype and result.shape == (tokens, heads, latent + rope)
    left, right = q[..., :nope].double().transpose(0, 1), both[:, :nope].double()
    expected, size = ((x @ y).transpose(0, 1) for x, y in ((left, right), (left.abs(), right.abs())))
    rounding = 2.0**-8 if dtype == torch.bfloat16 else 0
    error = (result[..., :latent].double() - expected).abs()
    assert (error <= rounding * expected.abs() + 2.0**-20 * size).all()
    cos, sin = (x.double().numpy()[:, None] for x in (angles.cos(), angles.sin()))
    turned = rotate_interleaved(q[..., nope:].double().numpy(), cos, sin)
    error = np.abs(result[..., latent:].double().numpy() - turned)
    assert (error <= rounding * np.abs(turned) + 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("tokens", "heads", "nope", "rope", "latent"), QUERIES.values(), ids=QUERIES.keys())
def test_rotate(
    backend: Backend, tokens: int, heads: int, nope: int, rope: int, latent: int, dtype: torch.dtype
) -> None:
    """The other dims keep their bits, and all implementations give the same ones."""
    q = random(tokens, heads, nope + rope, dtype=dtype, seed=1)
    angles = random(tokens, rope // 2, dtype=torch.float32, seed=3) * 10
    result = backend.run(rotate_queries, q.clone(), angles.cos(), angles.sin())
    cos, sin = (x.double().numpy()[:, None] for x in (angles.cos(), angles.sin()))
    turned = torch.from_numpy(rotate_interleaved(q[..., nope:].double().numpy(), cos, sin))
    error = (result[..., nope:].double() - turned).abs()
    assert (error <= (2.0**-8 if dtype == torch.bfloat16 else 0) * turned.abs() + 1e-5).all()
    assert torch.equal(result[..., :nope], q[..., :nope])
    assert torch.equal(result, rotate_queries(q, angles.cos(), angles.sin(), backend="reference"))


VALUES = {  # tokens, heads, value dims, latent
    "one token": (1, 128, 128, 512),
    "three tokens, a rank's heads": (3, 16, 128, 512),
    "sixteen": (16, 4, 128, 512),
    "seventeen": (17, 4, 128, 512),
    "64": (64, 16, 128, 512),
    "an odd number, several tiles for a CTA": (333, 70, 128, 512),
    "other sizes": (5, 3, 48, 40),
    "no token": (0, 2, 128, 512),
}


@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
@pytest.mark.parametrize(("tokens", "heads", "value", "latent"), VALUES.values(), ids=VALUES.keys())
def test_expand(backend: Backend, tokens: int, heads: int, value: int, latent: int, ue8m0: bool) -> None:
    """Small integers, so that sums are exact in any order and codes are known exactly. One head is all zero."""
    generator = torch.Generator().manual_seed(tokens)
    latents = torch.randint(-3, 4, (tokens, heads, latent), generator=generator).bfloat16()
    latents[:, heads // 2] = 0
    both = torch.full((heads, 16 + value, latent), float("nan"), dtype=torch.bfloat16)
    both[:, 16:] = torch.randint(-3, 4, (heads, value, latent), generator=generator).bfloat16() / 8
    values, scales = backend.run(expand_quantize, latents, both[:, 16:], ue8m0)
    product = torch.einsum("thl,hvl->thv", latents.double(), both[:, 16:].double())
    codes, expected = e4m3.quantize(product.flatten(1).bfloat16().float().numpy(), ue8m0)
    np.testing.assert_array_equal(scales.numpy(), expected)
    np.testing.assert_array_equal(e4m3.codes_of(values), codes)


@pytest.mark.gpu
@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
@pytest.mark.parametrize("heads", [128, 64, 3])
def test_many_tokens_have_the_bits_of_few(heads: int, ue8m0: bool) -> None:
    """Both kernels make a sum as one chain of MMAs, ascending. Tokens are a part of a wider tensor, as a step's tokens are."""
    generator = torch.Generator("cuda").manual_seed(heads)
    weight = torch.randn(heads, 256, 512, generator=generator, device="cuda").bfloat16()
    wk, wv = weight.split(128, 1)
    q, latents = (
        (torch.randn(517, heads, width, generator=generator, device="cuda") * 3).bfloat16()[5:] for width in (192, 512)
    )
    angles = torch.randn(512, 32, generator=generator, device="cuda")
    cos, sin = angles.cos(), angles.sin()
    for rows in (slice(0, 9), slice(0, 64), slice(100, 301), slice(0, 512)):
        absorbed = kv_up_projection.absorb_queries(q[rows], cos[rows], sin[rows], wk)
        codes, scales = kv_up_projection.expand_quantize(latents[rows], wv, ue8m0)
        for first in range(0, len(absorbed), 8):
            few = slice(rows.start + first, min(rows.start + first + 8, rows.stop))
            expected = absorb_queries(q[few], cos[few], sin[few], wk, backend=("invariant",))
            assert torch.equal(absorbed[first : first + 8], expected)
            values, expected_scales = expand_quantize(latents[few], wv, ue8m0, backend=("invariant",))
            assert torch.equal(codes[first : first + 8].view(torch.uint8), values.view(torch.uint8))
            assert torch.equal(scales[first : first + 8], expected_scales)


def test_misuse_names_the_argument() -> None:
    q, angles = torch.ones(2, 3, 192), torch.ones(2, 32)
    with pytest.raises(ValueError, match=r"wk has shape \[3, 127, 512\]; expected \[3, 128, \*\]"):
        absorb_queries(q, angles, angles, torch.ones(3, 127, 512))
    with pytest.raises(ValueError, match=r"wk has dtype torch\.bfloat16"):
        absorb_queries(q, angles, angles, torch.ones(3, 128, 512).bfloat16())
    with pytest.raises(ValueError, match=r"wv has shape \[4, 128, 512\]; expected \[3, \*, 512\]"):
        expand_quantize(torch.ones(2, 3, 512), torch.ones(4, 128, 512))
