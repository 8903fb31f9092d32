"""The small fp32 operations against float64."""

import pytest
import torch

from deepseek_v32.kernels.fp32_ops import fp32_linear, layer_norm
from support.backends import Backend

LINEAR = {  # tokens, columns, rows of the weight: router; index weights; around the tiles; ragged; too wide; nothing
    "router, one token": (1, 7168, 256),
    "router, three tokens": (3, 7168, 256),
    "index weights": (8, 7168, 64),
    "33 tokens": (33, 1024, 64),
    "32 tokens": (32, 260, 5),
    "batches of 64 tokens": (700, 2052, 70),
    "several batches a CTA": (1300, 1024, 256),
    "no whole vector": (2, 9, 3),
    "wide": (2, 9000, 4),
    "no token": (0, 64, 4),
}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("tokens", "columns", "rows"), LINEAR.values(), ids=LINEAR.keys())
def test_linear(backend: Backend, tokens: int, columns: int, rows: int, dtype: torch.dtype) -> None:
    x, weight = random(tokens, columns, dtype=dtype, seed=1), random(rows, columns, seed=2)
    for scale in (1.0, 0.3):
        result = backend.run(fp32_linear, x, weight, scale)
        assert result.dtype == torch.float32 and result.shape == (tokens, rows)
        left, right = x.double(), weight.double()
        expected, size = left @ right.T * scale, left.abs() @ right.abs().T
        assert ((result.double() - expected).abs() <= 2.0**-20 * size).all()


@pytest.mark.gpu
def test_results_of_bf16_tokens_do_not_depend_on_the_batch() -> None:
    """Of at least five tokens, which go to the tensor cores, and of up to four, which do not."""
    x, weight = random(1000, 7168, dtype=torch.bfloat16, seed=8).cuda(), random(256, 7168, seed=9).cuda()
    whole = fp32_linear(x, weight)
    for rows in (slice(0, 5), slice(63, 72), slice(100, 228), slice(5, 999)):
        assert torch.equal(fp32_linear(x[rows], weight), whole[rows])
    few = fp32_linear(x[:4], weight)
    for row in range(4):
        assert torch.equal(fp32_linear(x[row : row + 1], weight), few[row : row + 1])


def test_weights_of_all_sizes(backend: Backend) -> None:
    """The three parts of a weight lie far apart: each must be there, down to the smallest normal numbers of the third."""
    size = 2.0 ** torch.randint(-90, 90, (64, 1024), generator=torch.Generator().manual_seed(10)).float()
    x, weight = random(3, 1024, dtype=torch.bfloat16, seed=11), random(64, 1024, seed=12) * size
    result = backend.run(fp32_linear, x, weight)
    left, right = x.double(), weight.double()
    assert ((result.double() - left @ right.T).abs() <= 2.0**-20 * (left.abs() @ right.abs().T)).all()


def test_linear_over_strided_rows(backend: Backend) -> None:
    wide = torch.full((3, 80), float("nan"))
    wide[:, :64] = random(3, 64, seed=3)
    weight = random(5, 64, seed=4)
    torch.testing.assert_close(
        backend.run(fp32_linear, wide[:, :64], weight), wide[:, :64] @ weight.T, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("columns", [128, 1, 64, 100, 256, 300], ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 3, 64, 129], ids=str)
def test_layer_norm(backend: Backend, tokens: int, columns: int, dtype: torch.dtype) -> None:
    wide = random(tokens, columns + 8, dtype=dtype, seed=5) * 3 + 1
    x = wide[:, :columns]
    weight, bias = random(columns, seed=6), random(columns, seed=7)
    result = backend.run(layer_norm, x, weight, bias, 1e-6)
    assert result.dtype == dtype and result.shape == x.shape
    exact = x.double()
    centred = exact - exact.mean(1, keepdim=True)
    expected = centred / (centred.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight.double() + bias.double()
    rounding = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-20
    assert ((result.double() - expected).abs() <= rounding * expected.abs() + 2e-5).all()


def test_misuse_names_the_argument() -> None:
    with pytest.raises(ValueError, match=r"weight has dtype torch\.bfloat16"):
        fp32_linear(torch.ones(2, 4), torch.ones(3, 4).bfloat16())
    with pytest.raises(ValueError, match=r"bias has shape \[3\]; expected \[4\]"):
        layer_norm(torch.ones(2, 4), torch.ones(4), torch.ones(3), 1e-6)
