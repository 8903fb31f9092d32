"""The Hadamard transform against its definition: H[i, j] = (-1)^(number of common one bits of i and j)."""

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.hadamard import hadamard_transform, rotate_quantize
from support import e4m3
from support.backends import Backend
from support.compare import FP32, Tolerance, assert_close
from support.rope import rotate_half_split, rotate_interleaved


def matrix(width: int) -> np.ndarray:
    return np.array([[(-1.0) ** (i & j).bit_count() for j in range(width)] for i in range(width)])


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# trivial; smallest; less than a vector; rope; index head; two groups; many
@pytest.mark.parametrize("width", [1, 2, 8, 64, 128, 256, 2048], ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # bf16: half a unit in the last place of an fp32 result
    [(torch.float32, FP32), (torch.bfloat16, Tolerance(2.0**-8, 1e-6, 1e-5))],
    ids=["fp32", "bf16"],
)
def test_transform(backend: Backend, width: int, dtype: torch.dtype, tolerance: Tolerance) -> None:
    x = seeded(3, 5, width).to(dtype)
    result = backend.run(hadamard_transform, x, width**-0.5)
    assert result.dtype == dtype
    assert_close(result, x.double().numpy() @ matrix(width) * width**-0.5, tolerance)


def test_unit_vectors_give_the_rows_exactly(backend: Backend) -> None:
    result = backend.run(hadamard_transform, torch.eye(128), 0.5)
    np.testing.assert_array_equal(result.numpy(), matrix(128) / 2)


def test_rotation_preserves_scores(backend: Backend) -> None:
    """With scale D^-0.5 the transform is orthogonal: it keeps dot products of q and k, and applied twice it is the identity."""
    q, k = seeded(4, 128, seed=1), seeded(6, 128, seed=2)
    rotated = [backend.run(hadamard_transform, x, 128**-0.5) for x in (q, k)]
    assert_close(rotated[0] @ rotated[1].T, (q.double() @ k.double().T).numpy(), Tolerance(1e-5, 1e-5))
    assert_close(backend.run(hadamard_transform, rotated[0], 128**-0.5), q.double().numpy(), Tolerance(1e-5, 1e-6))


def test_empty(backend: Backend) -> None:
    assert backend.run(hadamard_transform, torch.empty(0, 128), 1.0).shape == (0, 128)


ROTATE = {  # tokens, heads, width, rope dims; released 64 heads of 128 with 64 rotated; one; all dims rotated
    "released": (3, 64, 128, 64),
    "one": (1, 1, 128, 64),
    "all dims rotate": (2, 3, 128, 128),
    "no token": (0, 4, 128, 64),
    "tokens that fill no block": (127, 3, 128, 64),
    "rope of a few dims": (3, 2, 64, 6),
    "two groups": (3, 2, 256, 64),
}


@pytest.mark.parametrize(("tokens", "heads", "width", "rope"), ROTATE.values(), ids=ROTATE.keys())
@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rotate_quantize(
    backend: Backend, tokens: int, heads: int, width: int, rope: int, interleaved: bool, dtype: torch.dtype
) -> None:
    x = seeded(tokens, heads, width, seed=3).to(dtype)
    angles = 10 * seeded(tokens, rope // 2, seed=4)
    cos, sin = angles.cos(), angles.sin()
    result = backend.run(rotate_quantize, x, cos, sin, interleaved)
    assert result.values.shape == x.shape and result.scales.shape == (tokens, heads, -(-width // 128))
    if not tokens:
        return
    rotate = rotate_interleaved if interleaved else rotate_half_split
    turned = x.double().numpy()
    turned[..., :rope] = rotate(turned[..., :rope], cos.double().numpy()[:, None], sin.double().numpy()[:, None])
    exact = (turned @ matrix(width) * width**-0.5).reshape(-1, width)
    got = e4m3.codes_of(result.values).reshape(-1, width)
    scales = result.scales.numpy().reshape(tokens * heads, -1)
    if dtype == torch.float32:
        codes, expected = e4m3.quantize(exact.astype(np.float32))
        np.testing.assert_array_equal(scales, expected)
        wrong = got != codes
        assert wrong.mean() <= 1e-3  # one fp32 sum in ten thousand is on the other side of a midpoint
        assert (np.abs(got[wrong].astype(int) - codes[wrong]) == 1).all()
        return
    # bf16 may round between the steps, by 2^-8 of each of the 128 terms, so of the size of a row; e4m3 has an error of 2^-4.
    error = np.abs(e4m3.dequantize(got, scales) - exact)
    step = 2.0**-10 * scales.max(1, keepdims=True)
    assert (error <= 2.0**-4 * np.abs(exact) + step + 2.0**-7 * np.abs(exact).max(1, keepdims=True)).all()


@pytest.mark.parametrize("tokens", [0, 1, 3, 64], ids=str)
def test_weights_come_back_times_the_scales(backend: Backend, tokens: int) -> None:
    x, angles, weights = seeded(tokens, 64, 128, seed=7), seeded(tokens, 32, seed=8), seeded(tokens, 64, seed=9)
    result = backend.run(rotate_quantize, x.bfloat16(), angles.cos(), angles.sin(), weights=weights)
    assert torch.equal(result.weights, weights * result.scales[:, :, 0])
    plain = backend.run(rotate_quantize, x.bfloat16(), angles.cos(), angles.sin())
    assert plain.weights is None and torch.equal(plain.scales, result.scales)


def test_heads_of_a_wider_tensor(backend: Backend) -> None:
    """Queries that are a slice of wider rows, whose other columns are poison, give the same bytes as a copy."""
    wide = torch.full((4, 5, 200), float("nan"), dtype=torch.bfloat16)
    wide[:, 1:3, 8:136] = seeded(4, 2, 128, seed=5)
    angles = seeded(4, 32, seed=6)
    sliced = backend.run(rotate_quantize, wide[:, 1:3, 8:136], angles.cos(), angles.sin())
    whole = backend.run(rotate_quantize, wide[:, 1:3, 8:136].contiguous(), angles.cos(), angles.sin())
    np.testing.assert_array_equal(e4m3.codes_of(sliced.values), e4m3.codes_of(whole.values))
    assert torch.equal(sliced.scales, whole.scales)


MISUSE = {
    "width 96": (lambda: hadamard_transform(torch.ones(2, 96), 1.0), "x has 96 columns; expected a power of two"),
    "half precision": (
        lambda: hadamard_transform(torch.ones(2, 64, dtype=torch.float16), 1.0),
        "x has dtype torch.float16; expected torch.float32 or torch.bfloat16",
    ),
    "no head axis": (
        lambda: rotate_quantize(torch.ones(2, 128), torch.ones(2, 32), torch.ones(2, 32)),
        r"x has shape \[2, 128\]; expected \[\*, \*, \*\]",
    ),
    "angles of another batch": (
        lambda: rotate_quantize(torch.ones(2, 4, 128), torch.ones(3, 32), torch.ones(3, 32)),
        r"cos has shape \[3, 32\]; expected \[2, \*\]",
    ),
    "sin unlike cos": (
        lambda: rotate_quantize(torch.ones(2, 4, 128), torch.ones(2, 32), torch.ones(2, 64)),
        r"sin has shape \[2, 64\]; expected \[2, 32\]",
    ),
    "three quarters of a power of two": (
        lambda: rotate_quantize(torch.ones(2, 4, 96), torch.ones(2, 32), torch.ones(2, 32)),
        "x has 96 columns; expected a power of two",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
