"""The block-scaled FP8 GEMM against a float64 sum over the dequantised operands."""

import math

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.cuda import fp8_gemm as implementation
from deepseek_v32.kernels.fp8_gemm import fp8_gemm, fp8_gemms
from deepseek_v32.kernels.quantize import quantize_blocks
from deepseek_v32.kernels.types import Quantized
from support import e4m3
from support.backends import Backend
from support.compare import cosine_distance
from support.small_kernels import multiply

FP8 = torch.float8_e4m3fn

TILES = (*implementation.LARGE_TILES, implementation.PAIRED_TILE, implementation.WIDE_TILE, implementation.EXPERT_TILE)

CASES = {  # M, N, K
    "one row": (1, 128, 128),
    "one slice, one column": (5, 1, 128),
    "kv_a_proj: half-full last row block": (7, 576, 256),
    "a tile and one": (65, 136, 384),
    "ragged everywhere": (3, 130, 200),
    "narrower than a slice": (4, 64, 32),
    "long K": (2, 128, 7168),
}

# Tensor cores truncate the products of a step to about 14 bits below the largest; all other sums are fp32.
ACCUMULATION = {"reference": 2.0**-20, "cuda": 2.0**-11}

PROJECTIONS = (  # N, K of the released model, then those that an 8-way split adds
    *((2112, 7168), (1536, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048)),
    *((8192, 1536), (128, 7168), (36864, 7168), (7168, 18432)),
    *((3072, 1536), (4096, 512), (4608, 7168), (7168, 2304)),
)


def random_operands(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Codes without NaN, and scales over four orders of magnitude, so that a scale of the wrong block is noticed."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // 128)
    a, b = (e4m3.encode(rng.standard_normal((rows, k)) * 32) for rows in (m, n))
    a_scale = (10.0 ** rng.uniform(-2, 2, (m, blocks))).astype(np.float32)
    b_scale = (10.0 ** rng.uniform(-2, 2, (-(-n // 128), blocks))).astype(np.float32)
    return a, a_scale, b, b_scale


def exact_product(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray) -> tuple[np.ndarray, ...]:
    """The product, and the sum of the magnitudes of its terms, in float64."""
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
    assert (
        np.abs(result.double().numpy() - expected) <= rounding * np.abs(expected) + ACCUMULATION[backend.name] * size
    ).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), PROJECTIONS)
def test_projections_of_the_model(n: int, k: int) -> None:
    """Against an fp32 product of the dequantised operands on the GPU. A second run gives the same bits."""
    generator = torch.Generator("cuda").manual_seed(0)

    def operand(rows: int, block: int) -> tuple[Quantized, torch.Tensor]:
        values = (torch.randn(rows, k, device="cuda", generator=generator) * 32).to(FP8)
        scales = 10 ** torch.empty(-(-rows // block), k // 128, device="cuda").uniform_(-2, 2, generator=generator)
        return Quantized(values, scales), values.float() * scales.repeat_interleave(block, 0)[:rows].repeat_interleave(
            128, 1
        )

    weight, right = operand(n, 128)
    for m in (0, 1, 3, 64, 127, 128, 4096):
        a, left = operand(m, 1)
        result = fp8_gemm(a, *weight, torch.float32, backend="cuda")
        expected, size = left @ right.T, left.abs() @ right.abs().T
        assert ((result - expected).abs() <= 2.0**-20 * size + ACCUMULATION["cuda"] * size).all(), f"M={m}"
        assert torch.equal(result, fp8_gemm(a, *weight, torch.float32, backend="cuda")), f"M={m} twice"
        rounded = fp8_gemm(a, *weight, backend="cuda")
        error = (rounded.float() - expected).abs()
        assert (error <= 2.0**-8 * expected.abs() + ACCUMULATION["cuda"] * size).all(), f"M={m} in bf16"
        assert torch.equal(rounded, fp8_gemm(a, *weight, backend="cuda")), f"M={m} in bf16 twice"


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(2112, 7168), (640, 1536), (136, 384), (130, 2304)])
def test_bits_do_not_depend_on_the_tile_or_the_number_of_rows(n: int, k: int) -> None:
    """The kernel that never splits K: every tile, with one expert too, and single rows at another place of a tile."""
    generator = torch.Generator("cuda").manual_seed(0)

    def operand(rows: int, block: int) -> Quantized:
        values = (torch.randn(rows, k, device="cuda", generator=generator) * 32).to(FP8)
        return Quantized(values, torch.rand(-(-rows // block), -(-k // 128), device="cuda", generator=generator) + 0.5)

    a, weight = operand(700, 1), operand(n, 128)
    b = weight.values[None], weight.scales[None]
    base = multiply(a, *b, implementation.Tile(128, 128, False))
    for tile in TILES:
        for start, end in ((0, 700), (3, 4), (61, 250), (500, 700)):
            rows = Quantized(a.values.view(torch.uint8)[start:end].view(FP8), a.scales[start:end])
            result = multiply(rows, *b, tile)
            assert torch.equal(result, base[start:end]), f"{tile}, rows {start} to {end}"
    for start, end in ((0, 700), (5, 6), (100, 228)):
        offsets = torch.tensor([start, end], dtype=torch.int32, device="cuda")
        for tile in TILES:
            result = multiply(a, *b, tile, offsets)
            assert torch.equal(result[start:end], base[start:end]), f"{tile} with an expert, rows {start} to {end}"


def test_product_of_quantized_operands_is_close_to_the_exact_one(backend: Backend) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(70, 512, generator=generator), torch.randn(256, 512, generator=generator)
    scale = w.unflatten(0, (-1, 128)).unflatten(2, (-1, 128)).abs().amax((1, 3)) / 448
    codes = (w / scale.repeat_interleave(128, 0).repeat_interleave(128, 1)).to(FP8)
    result = backend.run(fp8_gemm, quantize_blocks(x), codes, scale, torch.float32)
    # Rounding to the 3 bits of e4m3 is a root mean square error of 2.6 % in both operands.
    assert cosine_distance(result.double().numpy(), (x.double() @ w.double().T).numpy()) < 1e-3


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


@pytest.mark.parametrize("rows", [0, 1, 3, 64, 65], ids=str)
@pytest.mark.parametrize("columns", [(1536, 576, 128), (24576, 8192), (130, 1, 128), (64,)], ids=str)
def test_several_weights_at_once(backend: Backend, rows: int, columns: tuple[int, ...]) -> None:
    """The same sums as with one weight at a time, up to the fp32 effect of another split of K."""
    generator = torch.Generator().manual_seed(rows)
    k = 384 if columns[0] < 10000 else 256

    def operand(count: int, block: int) -> Quantized:
        codes = (torch.randn(count, k, generator=generator) * 32).to(FP8)
        return Quantized(codes, torch.rand(-(-count // block), k // 128, generator=generator) + 0.5)

    a, weights = operand(rows, 1), [operand(count, 128) for count in columns]
    results = backend.run(fp8_gemms, a, weights, torch.float32)
    assert [result.shape for result in results] == [(rows, count) for count in columns]
    for result, weight in zip(results, weights, strict=True):
        single = backend.run(fp8_gemm, a, *weight, torch.float32)
        torch.testing.assert_close(result, single, rtol=1e-5, atol=1e-5 * 32 * 32 * k)


def test_default_output_is_bf16_and_no_row_is_no_row(backend: Backend) -> None:
    a, a_scale, b, b_scale = random_operands(0, 130, 128)
    result = backend.run(
        fp8_gemm, Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)), e4m3.as_fp8(b), torch.from_numpy(b_scale)
    )
    assert result.shape == (0, 130) and result.dtype == torch.bfloat16


@pytest.mark.parametrize("code", [e4m3.NAN_CODE, 0x80 | e4m3.NAN_CODE], ids=["+", "-"])
def test_nan_of_a_weight_stays_in_its_column(backend: Backend, code: int) -> None:
    a, a_scale, b, b_scale = random_operands(3, 5, 256)
    b[1, 200] = code
    operands = Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)), e4m3.as_fp8(b), torch.from_numpy(b_scale)
    for result in (backend.run(fp8_gemm, *operands), fp8_gemm(*operands, backend=("invariant",))):
        assert result[:, 1].isnan().all() and result[:, [0, 2, 3, 4]].isfinite().all()


def test_nan_stays_in_its_row(backend: Backend) -> None:
    """A NaN activation makes the results of its row NaN, and of no other row."""
    a, a_scale, b, b_scale = random_operands(3, 128, 256)
    a[1, 200] = e4m3.NAN_CODE
    quantized = Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale))
    result = backend.run(fp8_gemm, quantized, e4m3.as_fp8(b), torch.from_numpy(b_scale))
    assert result[1].isnan().all() and result[[0, 2]].isfinite().all()


def test_strided_rows_and_rerun(backend: Backend) -> None:
    """Rows of a wider tensor are read by their stride, and a second call gives the same bits."""
    a, a_scale, b, b_scale = random_operands(4, 128, 128)
    wide = torch.full((4, 160), math.nan).to(torch.float8_e4m3fn)
    wide.view(torch.uint8)[:, :128] = torch.from_numpy(a)
    arguments = e4m3.as_fp8(b), torch.from_numpy(b_scale)
    strided = backend.run(fp8_gemm, Quantized(wide[:, :128], torch.from_numpy(a_scale)), *arguments)
    packed = backend.run(fp8_gemm, Quantized(e4m3.as_fp8(a), torch.from_numpy(a_scale)), *arguments)
    assert torch.equal(strided, packed)


def call(out_dtype: torch.dtype = torch.bfloat16, **changes: torch.Tensor) -> torch.Tensor:
    a, a_scale, b, b_scale = (torch.from_numpy(x) for x in random_operands(2, 130, 256))
    given = {
        "values": a.view(torch.float8_e4m3fn),
        "scales": a_scale,
        "weight": b.view(torch.float8_e4m3fn),
        "weight_scale": b_scale,
    } | changes
    a = Quantized(given["values"], given["scales"])
    return fp8_gemm(a, given["weight"], given["weight_scale"], out_dtype)


MISUSE = {
    "bf16 activations": ({"values": torch.ones(2, 256)}, r"a\.values has dtype torch\.float32; expected .*e4m3fn"),
    "three axes": ({"values": torch.ones(1, 2, 256).to(FP8)}, r"a\.values has shape \[1, 2, 256\]"),
    "one scale too few": ({"scales": torch.ones(2, 1)}, r"a\.scales has shape \[2, 1\]; expected \[2, 2\]"),
    "bf16 scales": ({"scales": torch.ones(2, 2).bfloat16()}, r"a\.scales has dtype torch\.bfloat16"),
    "narrower weight": (
        {"weight": torch.ones(130, 128).to(FP8)},
        r"weight has shape \[130, 128\]; expected \[\*, 256\]",
    ),
    "scale rounded down": ({"weight_scale": torch.ones(1, 2)}, r"weight_scale has shape \[1, 2\]; expected \[2, 2\]"),
    "weight elsewhere": ({"weight": torch.ones(130, 256, device="meta").to(FP8)}, "weight is on meta; expected cpu"),
    "transposed weight": ({"weight": torch.ones(256, 130).to(FP8).T}, "weight has stride 130 .* expected 1"),
}


@pytest.mark.parametrize(("changes", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)


def test_results_are_bf16_or_fp32() -> None:
    """The kernels store bf16 or fp32 only: fp32 elements stored to an fp16 result would exceed its memory."""
    message = r"out_dtype is torch\.float16; expected torch\.float32 or torch\.bfloat16"
    with pytest.raises(ValueError, match=message):
        call(torch.float16)
    a, b = (Quantized(torch.ones(1, 128).to(FP8), torch.ones(1, 1)) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        fp8_gemms(a, [b], torch.float16)


@pytest.mark.parametrize(
    ("rows", "columns", "width", "tile"),
    [
        (1, 36864, 7168, (64, 288, True)),
        (17, 36864, 7168, (64, 288, True)),
        (63, 4096, 7168, 64),
        (64, 4096, 7168, (64, 32, False)),
        (64, 7168, 16384, (64, 64, False)),
        (64, 24576, 1536, (64, 112, False)),
        (64, 4608, 7168, 64),  # 72 tiles at most
        (128, 576, 7168, 64),  # 36 tiles at most: K is split
        (128, 4096, 7168, (64, 64, False)),
        (128, 7168, 16384, (64, 112, False)),
        (128, 2112, 7168, (64, 32, False)),
        (256, 7168, 2048, (128, 128, False)),
        (512, 4096, 7168, (128, 128, False)),
        (1024, 4096, 7168, (128, 256, False)),
        (1024, 2112, 7168, (128, 144, False)),
        (2048, 7168, 16384, (128, 128, False)),
        (4096, 4096, 7168, (128, 256, True)),  # four tiles of a long K one after the other
        (4096, 7168, 2048, (128, 256, False)),
        (4096, 32768, 512, (128, 192, False)),  # the tile with less besides its slices
    ],
)
def test_tiles_by_measured_times(rows: int, columns: int, width: int, tile: object) -> None:
    """On 132 multiprocessors. From 64 rows on, the fastest of the tiles measured for a product on an H200, or within 1 % of it."""
    assert implementation.choose(rows, columns, width, 132) == tile


def test_no_weight_has_no_product() -> None:
    assert fp8_gemms(Quantized(torch.ones(1, 128).to(FP8), torch.ones(1, 1)), []) == []
