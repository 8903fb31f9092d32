"""The oracle of Hopper's tensor cores against integers worked out by hand, exact sums, and the CUDA kernels' bits."""

import math
from fractions import Fraction

import pytest
import torch

from deepseek_v32.kernels import fp8_gemm as product
from deepseek_v32.kernels.grouped_gemm import grouped_gemm
from deepseek_v32.kernels.indexer_logits import indexer_logits
from deepseek_v32.kernels.linear import linear
from deepseek_v32.kernels.registry import preference_of
from deepseek_v32.kernels.types import Quantized
from support import hopper
from support.hopper import BF16, E4M3, Instruction, add_slice, chain, fma

gpu = pytest.mark.gpu


def slice_of(form: Instruction, *numbers: float) -> torch.Tensor:
    """A row of one slice: `numbers`, then zeros."""
    return torch.tensor([[*numbers, *[0.0] * (form.depth - len(numbers))]])


def one(form: Instruction, total: float, *pairs: tuple[float, float]) -> float:
    a, b = zip(*pairs, strict=True)
    result = add_slice(torch.tensor([[total]]), slice_of(form, *a), slice_of(form, *b), form)
    assert result.shape == (1, 1)
    return result.item()


def test_an_fp8_instruction_by_hand() -> None:
    # 1.5 * 1.5 has the exponent 0, so terms are cut off at 2^-13: of 2.25 + 2^-12 + 2^-14 the last is lost, and 14 bits of the rest
    # end at 2^-12.
    assert one(E4M3, 0.0, (1.5, 1.5), (2**-6, 2**-6)) == 2.25 + 2**-12
    assert one(E4M3, 0.0, (1.5, 1.5), (2**-7, 2**-7)) == 2.25
    # 1 + 2^-13 has 14 bits; with 2^-14 more nothing changes, in either sign: each term is cut off by itself.
    assert one(E4M3, 0.0, (1.0, 1.0), (2**-6, 2**-7)) == 1 + 2**-13
    assert one(E4M3, 1.0, (2**-7, 2**-7)) == 1.0
    assert one(E4M3, 1.0, (-(2**-7), 2**-7)) == 1.0
    assert one(E4M3, 1.0, (-(2**-6), 2**-7)) == 1 - 2**-13
    # Two halves of a unit are lost one by one.
    assert one(E4M3, 1.0, (2**-7, 2**-7), (2**-7, 2**-7)) == 1.0
    # What is large cancels, after what is small has been cut off.
    assert one(E4M3, 0.0, (448.0, 448.0), (-448.0, 448.0), (2.0, 1.0)) == 0.0  # 2^(8 + 8 - 13) = 8
    assert one(E4M3, 0.0, (448.0, 448.0), (-448.0, 448.0), (5.0, 2.0)) == 8.0
    # Subnormal operands have the exponent -6: 2^-9 * 2^-9 is 2^-18 at the exponent -12, and fits.
    assert one(E4M3, 0.0, (2**-9, 2**-9)) == 2**-18
    assert one(E4M3, 2**-12, (2**-9, 2**-9)) == 2**-12 + 2**-18
    # Results have 14 bits, cut off toward zero.
    assert one(E4M3, 0.0, *[(1.875, 1.875)] * 32) == 32 * 1.875**2
    assert one(E4M3, 2.0**13, (1.0, 1.0)) == 2.0**13 + 1
    assert (
        one(E4M3, -(2.0**13), (1.5, 1.0)) == -(2.0**13) + 1
    )  # a term is cut off toward zero, whatever the sign of the others
    assert one(E4M3, -(2.0**14), (1.0, 1.0), (1.0, 1.0)) == -(2.0**14)


def test_a_bf16_instruction_by_hand() -> None:
    assert one(BF16, 1.0, (2**-12, 2**-12)) == 1.0  # 2^-24 is kept as a term, but is beyond the 24 bits of the result
    assert one(BF16, 1.0, (2**-12, 2**-12), (2**-12, 2**-12)) == 1 + 2**-23
    assert one(BF16, 1.0, (2**-13, 2**-13), (2**-13, 2**-13)) == 1.0  # 2^-26 is cut off twice
    assert one(BF16, 0.0, (-1.5, 1.5), (2.0, 1.0)) == -0.25


def exact(x: float, y: float, z: float) -> Fraction:
    return Fraction(x) * Fraction(y) + Fraction(z)


def test_fused_multiply_add() -> None:
    """Against fractions: the result is the nearest fp32 number, the even one of two."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4000, generator=generator) for _ in range(2))
    z = torch.randn(4000, generator=generator) * torch.exp2(
        torch.randint(-40, 40, (4000,), generator=generator).float()
    )
    z[:1000] = -(x * y)[:1000]
    # Halfway between two fp32 numbers, and just next to it: what a float64 sum would round away.
    x[:3], y[:3], z[:3] = 1.0, 2.0**-24, 1.0
    z[1], z[2] = 1 + 2**-23, 1.0
    x[2], y[2] = 1 + 2**-23, 2.0**-24 * (1 + 2**-23)
    found = fma(x, y, z)
    for a, b, c, result in zip(x.tolist(), y.tolist(), z.tolist(), found.tolist(), strict=True):
        value = exact(a, b, c)
        near = torch.tensor(result)
        for other in (torch.nextafter(near, near - math.inf), torch.nextafter(near, near + math.inf)):
            distance, mine = abs(Fraction(other.item()) - value), abs(Fraction(result) - value)
            assert mine < distance or (mine == distance and near.view(torch.int32).item() % 2 == 0)
    assert found[0] == 1.0 and found[2] == 1 + 2**-23


def codes(*shape: int, seed: int, kind: str = "normal") -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator)
    if kind == "wide":
        x *= torch.exp2(torch.randint(-9, 9, shape, generator=generator).float())
    elif kind == "subnormal":
        x *= 2.0**-8
    elif kind == "cancelling":  # with a weight whose neighbours are opposite, most products cancel each other
        rest = x[..., ::16] * 0.1
        x[..., 1::2] = x[..., ::2]
        x[..., ::16] = rest
    return x.clamp(-448, 448).to(torch.float8_e4m3fn)


KINDS = ("normal", "wide", "subnormal", "cancelling")


def operands(kind: str, rows: int, columns: int, width: int) -> tuple[Quantized, Quantized]:
    generator = torch.Generator().manual_seed(9)
    blocks = -(-width // 128)
    weight = codes(columns, width, seed=2, kind="normal" if kind == "cancelling" else kind).float()
    if kind == "cancelling":
        weight[:, 1::2] = -weight[:, ::2]
    a_scale = torch.exp2(torch.randint(-6, 6, (rows, blocks), generator=generator).float())
    b_scale = torch.rand(-(-columns // 128), blocks, generator=generator) + 0.01
    return Quantized(codes(rows, width, seed=1, kind=kind), a_scale), Quantized(weight.to(torch.float8_e4m3fn), b_scale)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_near_the_exact_one(kind: str) -> None:
    """Terms and sums are cut off at 2^-13 of the largest term, in four instructions of each 128 of K."""
    a, weight = operands(kind, 5, 130, 300)
    found = hopper.fp8_gemm(a, *weight, torch.float32)
    left = a.values.double() * a.scales.repeat_interleave(128, 1)[:, :300]
    scales = weight.scales.repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)[:, :300]
    right = weight.values.double() * scales
    bound = (left.abs() @ right.abs().T) * 2.0**-8
    assert ((found - left @ right.T).abs() <= bound + 1e-30).all()
    assert not torch.equal(found, (left @ right.T).float()), "an oracle of truncation does not round"


def test_the_order_of_slices_decides() -> None:
    """And a permutation inside a slice does not."""
    a, b = codes(4, 128, seed=1).float(), codes(8, 128, seed=2).float()
    whole = chain(a, b, E4M3)
    inside = torch.cat([torch.arange(32).flip(0) + 32 * i for i in range(4)])
    assert torch.equal(chain(a[:, inside], b[:, inside], E4M3), whole)
    assert not torch.equal(chain(a.flip(1), b.flip(1), E4M3), whole)
    assert torch.equal(chain(b, a, E4M3).T, whole), "either operand may be the M of the instruction"


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bits, but for the sign of zero."""
    wrong = found != expected
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} differ"


@gpu
def test_the_oracle_is_exact_on_a_gpu() -> None:
    """Its powers of two come from a function that promises no exact results; all else is exact. The tests below run it there."""
    exponents = torch.arange(-200, 200)
    for ones in (torch.ones(400), torch.ones(400, dtype=torch.float64)):
        assert torch.equal(torch.ldexp(ones.cuda(), exponents.cuda()).cpu(), torch.ldexp(ones, exponents))
    a, weight = operands("wide", 20, 130, 300)
    on_gpu = [Quantized(*(x.cuda() for x in each)) for each in (a, weight)]
    expected = hopper.fp8_gemm(a, *weight, torch.float32, 2)
    assert torch.equal(hopper.fp8_gemm(on_gpu[0], *on_gpu[1], torch.float32, 2).cpu(), expected)


@gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 512, 1024), (64, 576, 1024), (200, 384, 640)], ids=str)
def test_fp8_gemm_has_the_oracle_s_bits(kind: str, shape: tuple[int, int, int]) -> None:
    a, weight = operands(kind, *shape)
    from deepseek_v32.kernels.invariant.gpu.fp8_gemm import splits_of

    a, weight = (Quantized(*(x.cuda() for x in each)) for each in (a, weight))
    expected = hopper.fp8_gemm(a, *weight, torch.float32, splits_of(*shape[1:]))
    backend = preference_of("auto", deterministic=True)
    same(product.fp8_gemm(a, *weight, torch.float32, backend=backend), expected)


@gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [6, 300])
def test_grouped_gemm_has_the_oracle_s_bits(kind: str, rows: int) -> None:
    pairs = [[Quantized(*(x.cuda() for x in each)) for each in operands(kind, rows, 256, 512)] for _ in range(3)]
    a, weights = pairs[0][0], [weight for _, weight in pairs]
    offsets = torch.tensor([0, rows // 3, rows // 3, rows], dtype=torch.int32, device="cuda")
    expected = hopper.grouped_gemm(a, weights, offsets, torch.float32)
    stacked = torch.stack([each.values.view(torch.uint8) for each in weights]).view(torch.float8_e4m3fn)
    found = grouped_gemm(
        a,
        stacked,
        offsets,
        torch.stack([each.scales for each in weights]),
        torch.float32,
        expected_m=rows,
        backend=preference_of("auto", deterministic=True),
    )
    same(found, expected)


@gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [16, 64])
def test_indexer_logits_have_the_oracle_s_bits(kind: str, heads: int) -> None:
    q, k = codes(3, heads, 128, seed=1, kind=kind), codes(300, 128, seed=2, kind=kind)
    generator = torch.Generator().manual_seed(3)
    weights, scales = torch.randn(3, heads, generator=generator), torch.rand(300, generator=generator) + 0.1
    q, k, weights, scales = (x.cuda() for x in (q, k, weights, scales))
    expected = hopper.indexer_logits(q, k, weights, scales)
    starts, ends = torch.zeros_like(q[:, 0, 0], dtype=torch.int32), torch.full((3,), 300, device="cuda").int()
    found = indexer_logits(q, k, weights, starts, ends, scales, backend="cuda")
    same(found, expected)


@gpu
@pytest.mark.parametrize("rows", [1, 40, 200])
def test_bf16_products_have_the_oracle_s_bits(rows: int) -> None:
    generator = torch.Generator().manual_seed(4)
    x, weight = (torch.randn(n, 328, generator=generator) for n in (rows, 300))
    x = (x * torch.exp2(torch.randint(-12, 12, x.shape, generator=generator).float())).bfloat16()
    x, weight = x.cuda(), weight.bfloat16().cuda()
    expected = hopper.linear(x, weight, torch.float32)
    found = linear(x, weight, torch.float32, backend=preference_of("auto", deterministic=True))
    same(found, expected)
