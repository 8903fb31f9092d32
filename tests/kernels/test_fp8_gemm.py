"""The block-scaled FP8 product against a float64 sum over the dequantised operands."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.quantize import Quantized
from support import e4m3
from support.backends import Backend

CASES = {  # M, N, K
    "one row": (1, 128, 128),
    "one slice, one column": (5, 1, 128),
    "kv_a_proj: half-full last row block": (7, 576, 256),
    "a tile and one": (65, 136, 384),
    "ragged everywhere": (3, 130, 200),
    "narrower than a slice": (4, 64, 32),
    "long K": (2, 128, 7168),
}


def random_operands(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Codes without NaN and scales over four orders of magnitude, so that a scale of the wrong block shows at once."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // 128)
    a, b = (e4m3.encode(rng.standard_normal((rows, k)) * 32) for rows in (m, n))
    a_scale = (10.0 ** rng.uniform(-2, 2, (m, blocks))).astype(np.float32)
    b_scale = (10.0 ** rng.uniform(-2, 2, (-(-n // 128), blocks))).astype(np.float32)
    return a, a_scale, b, b_scale


def exact_product(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray) -> tuple[np.ndarray, ...]:
    """The product and the sum of its terms' sizes, float64."""
    left = e4m3.dequantize(a, a_scale)
    right = e4m3.dequantize(b, b_scale.repeat(128, 0)[: len(b)])
    return left @ right.T, np.abs(left) @ np.abs(right).T


@pytest.mark.parametrize(("m", "n", "k"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.bfloat16, 2.0**-8), (torch.float32, 2.0**-23)], ids=["bf16", "fp32"]
)
def test_product(backend: Backend, m: int, n: int, k: int, dtype: torch.dtype, rounding: float) -> None:
    a, a_scale, b, b_scale = random_operands(m, n, k)
    quantized = Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale))
    result = backend.run(fp8_gemm, quantized, e4m3.as_fp8(b), torch.from_numpy(b_scale), dtype)
    expected, size = exact_product(a, a_scale, b, b_scale)
    assert result.dtype == dtype and result.shape == (m, n)
    # tensor cores keep at least 14 bits of a slice's partial sums; everything else accumulates in fp32
    accumulation = 2.0**-20 if backend.name == "reference" else 2.0**-13
    assert (np.abs(result.double().numpy() - expected) <= rounding * np.abs(expected) + accumulation * size).all()


def test_scales_apply_to_their_own_slice_and_block(backend: Backend) -> None:
    """All values 1: entry (m, n) is the sum over slices of width x activation scale x weight scale, exact in fp32."""
    a, b = e4m3.as_fp8(e4m3.encode(np.ones((2, 200)))), e4m3.as_fp8(e4m3.encode(np.ones((129, 200))))
    a_scale = torch.tensor([[1.0, 16.0], [256.0, 4096.0]])
    b_scale = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    result = backend.run(fp8_gemm, Quantized(a, a_scale), b, b_scale, torch.float32)
    for row in range(2):
        for column in (0, 127, 128):
            weight = b_scale[column // 128]
            assert result[row, column] == 128 * a_scale[row, 0] * weight[0] + 72 * a_scale[row, 1] * weight[1]


def test_default_output_is_bf16_and_no_row_is_no_row(backend: Backend) -> None:
    a, a_scale, b, b_scale = random_operands(0, 130, 128)
    result = backend.run(
        fp8_gemm, Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)), e4m3.as_fp8(b), torch.from_numpy(b_scale)
    )
    assert result.shape == (0, 130) and result.dtype == torch.bfloat16


def test_nan_stays_in_its_row(backend: Backend) -> None:
    """A NaN activation must show in its row's results, and in no other."""
    a, a_scale, b, b_scale = random_operands(3, 128, 256)
    a[1, 200] = e4m3.NAN_CODE
    quantized = Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale))
    result = backend.run(fp8_gemm, quantized, e4m3.as_fp8(b), torch.from_numpy(b_scale))
    assert result[1].isnan().all() and result[[0, 2]].isfinite().all()


def test_strided_rows_and_rerun(backend: Backend) -> None:
    """Rows of a wider tensor are taken by their stride; the same call gives the same bits."""
    a, a_scale, b, b_scale = random_operands(4, 128, 128)
    wide = torch.full((4, 160), math.nan).to(torch.float8_e4m3fn)
    wide.view(torch.uint8)[:, :128] = torch.from_numpy(a)
    arguments = e4m3.as_fp8(b), torch.from_numpy(b_scale)
    strided = backend.run(fp8_gemm, Quantized(wide[:, :128], torch.from_numpy(a_scale)), *arguments)
    packed = backend.run(fp8_gemm, Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)), *arguments)
    assert torch.equal(strided, packed)


def call(**changes: torch.Tensor) -> torch.Tensor:
    a, a_scale, b, b_scale = (torch.from_numpy(x) for x in random_operands(2, 130, 256))
    given = {
        "values": a.view(torch.float8_e4m3fn),
        "scales": a_scale,
        "weight": b.view(torch.float8_e4m3fn),
        "weight_scale": b_scale,
    } | changes
    return fp8_gemm(Quantized(given["values"], given["scales"]), given["weight"], given["weight_scale"])


FP8 = torch.float8_e4m3fn
MISUSE = {
    "bf16 activations": ({"values": torch.ones(2, 256)}, r"a\.values has dtype torch\.float32, expected .*e4m3fn"),
    "three axes": ({"values": torch.ones(1, 2, 256).to(FP8)}, r"a\.values has shape \[1, 2, 256\]"),
    "one scale too few": ({"scales": torch.ones(2, 1)}, r"a\.scales has shape \[2, 1\], expected \[2, 2\]"),
    "bf16 scales": ({"scales": torch.ones(2, 2).bfloat16()}, r"a\.scales has dtype torch\.bfloat16"),
    "narrower weight": (
        {"weight": torch.ones(130, 128).to(FP8)},
        r"weight has shape \[130, 128\], expected \[\*, 256\]",
    ),
    "scale rounded down": ({"weight_scale": torch.ones(1, 2)}, r"weight_scale has shape \[1, 2\], expected \[2, 2\]"),
    "weight elsewhere": ({"weight": torch.ones(130, 256, device="meta").to(FP8)}, "weight is on meta, expected cpu"),
    "transposed weight": ({"weight": torch.ones(256, 130).to(FP8).T}, "weight has stride 130 .* expected 1"),
}


@pytest.mark.parametrize(("changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)
