"""The FP8 quantiser, bit for bit, against e4m3 arithmetic written by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.kernels.quantize import quantize_blocks, rms_norm_quantize, swiglu_quantize
from deepseek_v32.kernels.quantize_weight import dequantize_weight, quantize_weight
from support import e4m3
from support.backends import Backend

TINY = 2.0**-149  # the smallest fp32 denormal
HALF_EPS = 1 + 2.0**-23  # the float after 1


def rows_of(*amax: float) -> np.ndarray:
    """One group of 128 for each amax: the amax, its negative half, and a range of smaller values."""
    fan = np.linspace(-1, 1, 125)
    return np.array([[a, -a, -a / 2, *(fan * a)] for a in amax], dtype=np.float32)


BITWISE = {
    "zeros": np.zeros((2, 128), np.float32),
    "negative zeros": np.full((1, 128), -0.0, np.float32),
    "denormals": rows_of(TINY, 3 * TINY, 2.0**-126, 2.0**-127),
    "amax at and around the floor": rows_of(1e-4, np.nextafter(np.float32(1e-4), np.float32(1)), 9.9e-5, 1e-5, 1e-12),
    "scale exactly a power of two": rows_of(*(448.0 * 2.0**e for e in range(-22, 20))),
    "one bit above a power of two": rows_of(*(448.0 * 2.0**e * HALF_EPS for e in range(-22, 20))),
    "one bit below a power of two": rows_of(*(448.0 * 2.0**e * (1 - 2.0**-24) for e in range(-21, 20))),
    "powers of two": rows_of(*(2.0**e for e in range(-30, 30))),
    "448 both ways": rows_of(448.0, 447.9, 448.1, 224.0),
    "largest floats": rows_of(3.4e38, float(np.finfo(np.float32).max)),
    "every code and every midpoint": np.stack(
        [
            np.concatenate([e4m3.VALUES[:127], [-448.0]]),
            np.concatenate([(e4m3.VALUES[:126] + e4m3.VALUES[1:127]) / 2, [448.0, -448.0]]),
            -np.concatenate([(e4m3.VALUES[:126] + e4m3.VALUES[1:127]) / 2, [448.0, -448.0]]),
        ]
    ).astype(np.float32),
    "next to every midpoint": np.nextafter(
        np.concatenate([(e4m3.VALUES[:126] + e4m3.VALUES[1:127]) / 2, [400.0, -448.0]]).astype(np.float32),
        np.float32(500),
    )[None],
    "random, many magnitudes": (
        np.random.default_rng(0).standard_normal((64, 256)) * 10.0 ** np.random.default_rng(1).integers(-6, 6, (64, 1))
    ).astype(np.float32),
    # Widths that are no multiple of 128: the last group is smaller and has its own amax.
    "width 1": np.array([[3.0], [-1e-9], [0.0]], np.float32),
    "width 127": np.random.default_rng(2).standard_normal((3, 127)).astype(np.float32),
    "width 129, huge first group": np.concatenate([rows_of(1e6), np.full((1, 1), 1e-3)], 1).astype(np.float32),
    "width 576": np.random.default_rng(3).standard_normal((2, 576)).astype(np.float32),
}


@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case}-{name}")
        for case, values in BITWISE.items()
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        if torch.from_numpy(values).to(dtype).isfinite().all()  # bf16 rounds the largest floats to infinity
    ],
)
def test_bitwise(backend: Backend, case: str, dtype: torch.dtype, ue8m0: bool) -> None:
    x = torch.from_numpy(BITWISE[case]).to(dtype)
    result = backend.run(quantize_blocks, x, ue8m0)
    codes, scales = e4m3.quantize(x.float().numpy(), ue8m0)
    assert result.values.dtype == torch.float8_e4m3fn and result.scales.dtype == torch.float32
    np.testing.assert_array_equal(result.scales.numpy(), scales)
    np.testing.assert_array_equal(e4m3.codes_of(result.values), codes)


def test_scale_values_by_hand(backend: Backend) -> None:
    """Three scales that are easy to check, and that of the floor: 2^-22 is the power of two above 1e-4 / 448."""
    x = torch.zeros(4, 128)
    x[:, 5] = torch.tensor([448.0, 449.0, -1.0, 0.0])
    assert backend.run(quantize_blocks, x).scales.flatten().tolist() == [1.0, 2.0, 2.0**-8, 2.0**-22]


def test_leading_axes_and_empty(backend: Backend) -> None:
    x = torch.randn(2, 3, 256, generator=torch.Generator().manual_seed(0))
    result, flat = backend.run(quantize_blocks, x), backend.run(quantize_blocks, x.reshape(6, 256))
    assert result.values.shape == (2, 3, 256) and result.scales.shape == (2, 3, 2)
    assert torch.equal(result.scales.reshape(6, 2), flat.scales)
    np.testing.assert_array_equal(e4m3.codes_of(result.values).reshape(6, 256), e4m3.codes_of(flat.values))
    empty = backend.run(quantize_blocks, torch.empty(0, 256))
    assert empty.values.shape == (0, 256) and empty.scales.shape == (0, 2)


def test_strided_rows(backend: Backend) -> None:
    """A slice of a wider tensor (the latent part of kv) gives the result of its copy; the skipped columns are not read."""
    wide = torch.full((3, 576), math.nan)
    wide[:, :512] = torch.randn(3, 512, generator=torch.Generator().manual_seed(1))
    codes, scales = e4m3.quantize(wide[:, :512].numpy())
    result = backend.run(quantize_blocks, wide[:, :512])
    np.testing.assert_array_equal(e4m3.codes_of(result.values), codes)
    np.testing.assert_array_equal(result.scales.numpy(), scales)


WEIGHTS = {
    "one block": (128, 128),
    "half-full last row block (kv_a_proj: 576 rows)": (576, 256),
    "ragged both ways": (130, 200),
    "smaller than a block": (3, 5),
}


@pytest.mark.parametrize("shape", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("ue8m0", [True, False], ids=["ue8m0", "plain scale"])
def test_weight_blocks(shape: tuple[int, int], ue8m0: bool) -> None:
    rng = np.random.default_rng(4)
    rows, columns = shape
    weight = rng.standard_normal(shape).astype(np.float32)
    weight *= (
        10.0 ** rng.integers(-2, 3, ((rows + 127) // 128, 1)).repeat(128, 0)[:rows]
    )  # each block of rows has its own magnitude
    weight[0, 0] = 0.0
    result = quantize_weight(torch.from_numpy(weight), ue8m0)
    read_back = dequantize_weight(result.values, result.scales).numpy()
    assert result.scales.shape == (-(-rows // 128), -(-columns // 128))
    for i in range(result.scales.shape[0]):
        for j in range(result.scales.shape[1]):
            block = np.s_[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
            scale = e4m3.group_scale(np.abs(weight[block]).max(), ue8m0)
            codes = e4m3.encode(weight[block] / scale)
            assert result.scales[i, j] == scale
            np.testing.assert_array_equal(e4m3.codes_of(result.values)[block], codes)
            exact = (e4m3.VALUES[codes] * np.float64(scale)).astype(np.float32)
            np.testing.assert_array_equal(read_back[block], exact)


def test_weight_scale_multiplies_despite_its_name() -> None:
    weight = e4m3.as_fp8(e4m3.encode(np.full((130, 129), 3.0)))
    scale = torch.tensor([[0.5, 2.0], [4.0, 8.0]])
    read_back = dequantize_weight(weight, scale, torch.bfloat16)
    assert read_back.dtype == torch.bfloat16
    corners = [read_back[0, 0], read_back[127, 128], read_back[128, 127], read_back[129, 128]]
    assert [float(value) for value in corners] == [1.5, 6.0, 12.0, 24.0]


@pytest.mark.parametrize("shape", [(1, 1), (300, 200), (140, 520), (3, 1400)], ids=str)
@pytest.mark.parametrize("nan", [False, True], ids=["finite", "nan"])
def test_every_code_times_every_kind_of_scale(
    shape: tuple[int, int], nan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product in fp32 of numbers decoded by hand, for scales from subnormal ones to infinity; parts of one row and of more."""
    monkeypatch.setattr("deepseek_v32.kernels.reference.e4m3.NUMBERS", 1024)
    rng = np.random.default_rng(sum(shape))
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    codes[codes % 128 == e4m3.NAN_CODE] = 0
    if nan:
        codes[-1, -1], codes[0, shape[1] // 2] = 0x7F, 0xFF
    blocks = -(-shape[0] // 128), -(-shape[1] // 128)
    odd = np.array([1.0, -0.3, 1e-45, 3e-39, 2.0**119, 2.0**119.99, 3e38, np.inf, np.nan], np.float32)
    usual = rng.uniform(0.5, 2, blocks).astype(np.float32)
    for scales in (usual, *(np.full(blocks, x) for x in odd), rng.choice(odd, blocks)):
        with np.errstate(all="ignore"):
            numbers = e4m3.VALUES.astype(np.float32)[codes]
            expected = numbers * scales.repeat(128, 0)[: shape[0]].repeat(128, 1)[:, : shape[1]]
        weight, scale = e4m3.as_fp8(codes), torch.from_numpy(scales)
        found = dequantize_weight(weight, scale)
        np.testing.assert_array_equal(found.numpy(), expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found.numpy())[known], np.signbit(expected)[known])
        out = torch.empty(shape, dtype=torch.bfloat16)
        assert dequantize_weight(weight, scale, torch.bfloat16, out) is out
        assert torch.equal(out.nan_to_num(7.0), found.bfloat16().nan_to_num(7.0))


def test_zero_weight_block_has_a_finite_scale() -> None:
    result = quantize_weight(torch.zeros(4, 130))
    assert result.scales.isfinite().all() and (result.scales > 0).all()
    assert result.values.float().eq(0).all()


@pytest.mark.parametrize(("dtype", "ulp"), [(torch.float32, 2.0**-21), (torch.bfloat16, 2.0**-8)], ids=["fp32", "bf16"])
@pytest.mark.parametrize("width", [1, 128, 200, 1536], ids=str)  # one; one group; ragged; q_lora_rank
def test_rms_norm_quantize(backend: Backend, width: int, dtype: torch.dtype, ulp: float) -> None:
    generator = torch.Generator().manual_seed(width)
    x = (torch.randn(5, width, generator=generator) * torch.tensor([1e-4, 1e-2, 1.0, 30.0, 1e3])[:, None]).to(dtype)
    weight = torch.rand(width, generator=generator) + 0.5
    total, normed, (values, scales) = backend.run(rms_norm_quantize, x, weight, 1e-6)
    assert torch.equal(total, x)
    wide = x.double()
    expected = wide / (wide.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight.double()
    assert normed.dtype == dtype
    assert ((normed.double() - expected).abs() <= ulp * expected.abs()).all()
    codes, expected = e4m3.quantize(normed.float().numpy())  # "the same rows quantised": from the rounded rows
    np.testing.assert_array_equal(scales.numpy(), expected)
    np.testing.assert_array_equal(e4m3.codes_of(values), codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rms_norm_of_a_sum(backend: Backend, dtype: torch.dtype) -> None:
    """x + residual is rounded once to their dtype; the rest has the bits of the norm of that sum."""
    generator = torch.Generator().manual_seed(1)
    x, residual = (torch.randn(5, 7168, generator=generator).to(dtype) * factor for factor in (1, 100))
    weight = torch.rand(7168, generator=generator) + 0.5
    summed = backend.run(rms_norm_quantize, x, weight, 1e-6, residual=residual)
    assert torch.equal(summed.total, (x.double() + residual.double()).to(dtype))
    apart = backend.run(rms_norm_quantize, summed.total, weight, 1e-6)
    assert torch.equal(summed.rows, apart.rows) and torch.equal(summed.quantized.scales, apart.quantized.scales)
    np.testing.assert_array_equal(e4m3.codes_of(summed.quantized.values), e4m3.codes_of(apart.quantized.values))


def test_rms_norm_of_slices(backend: Backend) -> None:
    """Both addends are slices of wider, poisoned tensors, with strides and starts that allow no vector loads."""
    generator = torch.Generator().manual_seed(2)
    wide = torch.full((2, 3, 1001), math.nan, dtype=torch.bfloat16)
    wide[..., 3:515] = torch.randn(2, 3, 512, generator=generator)
    weight = torch.rand(512, generator=generator)
    sliced = backend.run(rms_norm_quantize, wide[0, :, 3:515], weight, 1e-6, residual=wide[1, :, 3:515])
    whole = backend.run(
        rms_norm_quantize, *(wide[0, :, 3:515].clone(), weight, 1e-6), residual=wide[1, :, 3:515].clone()
    )
    for mine, theirs in zip((*sliced[:2], *sliced.quantized), (*whole[:2], *whole.quantized), strict=True):
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))


# none, one, few, a block of rows, one less, two, a prefill chunk
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 127, 128, 4096], ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("operation", [quantize_blocks, rms_norm_quantize, swiglu_quantize], ids=lambda f: f.__name__)
def test_any_number_of_rows(backend: Backend, operation: Callable[..., Any], rows: int) -> None:
    """The first, last and middle row are exact; all others are within the error of e4m3: half of 2^-3, and its smallest step."""
    width = 2048 if rows > 1000 else 7168
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 2 * width, generator=generator).bfloat16()
    if operation is swiglu_quantize:
        result = backend.run(swiglu_quantize, x)
        exact = (torch.nn.functional.silu(x[:, :width].float()) * x[:, width:].float()).bfloat16().float()
    elif operation is rms_norm_quantize:
        normed = backend.run(rms_norm_quantize, x[:, :width], torch.ones(width), 1e-6)
        result, exact = normed.quantized, normed.rows.float()
        expected = x[:, :width] * (x[:, :width].float().square().mean(1, keepdim=True) + 1e-6).rsqrt()
        torch.testing.assert_close(exact, expected, rtol=2.0**-8, atol=0)
    else:
        result, exact = backend.run(quantize_blocks, x[:, :width]), x[:, :width].float()
    assert result.values.shape == (rows, width) and result.scales.shape == (rows, width // 128)
    spread = result.scales.repeat_interleave(128, 1)
    # The fp32 exponential of the gate may differ by a bit, and so may the rounding to bf16.
    slack = 2.0**-8 * exact.abs() if operation is swiglu_quantize else 0.0
    assert ((result.values.float() * spread - exact).abs() <= 2.0**-4 * exact.abs() + 2.0**-10 * spread + slack).all()
    for row in {0, rows // 2, rows - 1} if rows else ():
        codes, scales = e4m3.quantize(exact[row : row + 1].numpy())
        wrong = e4m3.codes_of(result.values)[row] != codes[0]
        assert wrong.mean() <= (1e-3 if operation is swiglu_quantize else 0)
        np.testing.assert_array_equal(result.scales[row].numpy(), scales[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("width", [1, 128, 200, 2048], ids=str)  # one; one group; ragged; an expert
def test_swiglu_quantize(backend: Backend, width: int, dtype: torch.dtype) -> None:
    """silu and product are fp32; the result is rounded to x's dtype, as in DeepSeek's model.py (`type_as(x)`), then quantised.

    A silu that were rounded to bf16 before the product would move one code in thirty.
    """
    generator = torch.Generator().manual_seed(width)
    x = (3 * torch.randn(6, 2 * width, generator=generator)).to(dtype)
    values, scales = backend.run(swiglu_quantize, x)
    gate, up = x.double().numpy()[:, :width], x.double().numpy()[:, width:]
    product = torch.from_numpy(gate / (1 + np.exp(-gate)) * up).to(dtype)
    codes, expected = e4m3.quantize(product.float().numpy())
    np.testing.assert_array_equal(scales.numpy(), expected)
    got = e4m3.codes_of(values)
    wrong = got != codes
    assert wrong.mean() <= 1e-3
    assert (np.abs(got[wrong].astype(int) - codes[wrong]) == 1).all()


def test_swiglu_of_large_negative_gates_is_zero(backend: Backend) -> None:
    values, _ = backend.run(swiglu_quantize, torch.tensor([[-1e4, -200.0, 5.0, 5.0]]))
    assert values.float().eq(0).all()


@pytest.mark.parametrize("width", [128, 200], ids=str)
@pytest.mark.parametrize("count", [0, 1, 37, 64, 100], ids=str)
def test_swiglu_quantize_of_the_first_rows(backend: Backend, width: int, count: int) -> None:
    """Rows before `count` have the values that they have without it, also if `count` is past the end."""
    x = torch.randn(64, 2 * width, generator=torch.Generator().manual_seed(count)).bfloat16()
    whole = backend.run(swiglu_quantize, x)
    some = backend.run(swiglu_quantize, x, count=torch.tensor([count], dtype=torch.int32))
    for mine, theirs in zip(some, whole, strict=True):
        assert torch.equal(mine[:count].view(torch.uint8), theirs[:count].view(torch.uint8))


MISUSE = {
    "integers": (lambda: quantize_blocks(torch.ones(2, 128, dtype=torch.int32)), r"x has dtype torch\.int32; expected"),
    "fp8 again": (lambda: quantize_blocks(torch.ones(2, 128).to(torch.float8_e4m3fn)), "x has dtype .*e4m3fn"),
    "columns strided": (lambda: quantize_blocks(torch.ones(128, 4).T), "x has stride 4 .* expected 1"),
    "norm of one axis": (lambda: rms_norm_quantize(torch.ones(8), torch.ones(8), 1e-6), r"x has shape \[8\]"),
    "norm weight too long": (
        lambda: rms_norm_quantize(torch.ones(2, 8), torch.ones(9), 1e-6),
        r"weight has shape \[9\]; expected \[8\]",
    ),
    "norm weight in bf16": (
        lambda: rms_norm_quantize(torch.ones(2, 8), torch.ones(8, dtype=torch.bfloat16), 1e-6),
        "weight has dtype torch.bfloat16; expected torch.float32",
    ),
    "count of two": (
        lambda: swiglu_quantize(torch.ones(2, 8), count=torch.ones(2, dtype=torch.int32)),
        r"count has shape \[2\]; expected \[1\]",
    ),
    "odd gate_up": (lambda: swiglu_quantize(torch.ones(2, 7)), "gate_up has 7 columns; expected an even number"),
    "weight of three axes": (lambda: quantize_weight(torch.ones(2, 3, 4)), r"weight has shape \[2, 3, 4\]"),
    "scale of another weight": (
        lambda: dequantize_weight(torch.ones(130, 8).to(torch.float8_e4m3fn), torch.ones(1, 1)),
        r"scale has shape \[1, 1\]; expected \[2, 1\]",
    ),
    "another device": (
        lambda: rms_norm_quantize(torch.ones(2, 8), torch.ones(8, device="meta"), 1e-6),
        "weight is on meta; expected cpu",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_names_the_argument(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
