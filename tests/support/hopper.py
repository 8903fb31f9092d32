"""What Hopper's tensor cores compute, bit by bit: an oracle on any device for the CUDA kernels of FP8 and bf16 products.

The model of one warpgroup MMA instruction was found by experiment on an H200 and has no exception in finite results that is known
(docs/determinism.md). An instruction adds a slice of K, 32 of FP8 or 16 of bf16, to an accumulator:

- products are exact, at the sum of the operands' exponents, not normalised;
- e is the largest exponent among the accumulator and the products that are not zero;
- each term is cut off, toward zero, below 2^(e - F), with F = 13 for FP8 and 25 for bf16, and the terms are added as integers;
- the sum is cut off, toward zero, to 14 bits for FP8 and 24 for bf16.

An accumulator's bits depend on the slices in their order, not on the tile or on which operand is the M of the instruction. The sign
of zero, infinity and NaN are not modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from deepseek_v32.kernels.reference.quantize import GROUP
from deepseek_v32.kernels.types import Quantized

ROWS = 64  # of the left operand at a time: an instruction's terms are then [64, N, 32] integers


@dataclass(frozen=True)
class Instruction:
    """An MMA instruction: slices of `depth`, terms cut off at 2^(e - fraction), results of `bits` bits."""

    depth: int
    fraction: int
    bits: int
    mantissa: int  # bits of the operands' fractions
    least: int  # their smallest exponent


E4M3 = Instruction(32, 13, 14, 3, -6)
BF16 = Instruction(16, 25, 24, 7, -126)
_FP32 = Instruction(0, 0, 24, 23, -126)


def split(x: torch.Tensor, form: Instruction) -> tuple[torch.Tensor, torch.Tensor]:
    """Finite fp32 x that a number of this form represents -> (exponent, signed integer): x = integer * 2^(exponent - mantissa)."""
    exponent = torch.frexp(x)[1]  # of a fraction in [0.5, 1)
    exponent = (exponent - 1).clamp_min(form.least).long()  # subnormal numbers have the smallest exponent
    integer = torch.ldexp(x.double(), form.mantissa - exponent)
    return exponent, integer.long()


def _shifted(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """x * 2^by for integers, cut off toward zero."""
    size = (x.abs() << by.clamp(0, 40)) >> (-by).clamp(0, 62)
    return torch.where(x < 0, -size, size)


def _bit_length(x: torch.Tensor) -> torch.Tensor:
    return torch.frexp(x.double())[1].long()  # exact below 2^53


def add_slice(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, form: Instruction) -> torch.Tensor:
    """One instruction: total fp32 [M, N] plus a [M, depth] times b [N, depth], the operands as fp32 numbers of the form."""
    (a_exponent, a_integer), (b_exponent, b_integer) = split(a, form), split(b, form)
    product = a_integer[:, None] * b_integer
    exponent = a_exponent[:, None] + b_exponent
    own_exponent, own = split(total, _FP32)
    nowhere = -(1 << 20)
    top = torch.where(product == 0, nowhere, exponent).amax(2)
    top = torch.maximum(top, torch.where(own == 0, nowhere, own_exponent))
    terms = _shifted(product, exponent - top[..., None] + (form.fraction - 2 * form.mantissa))
    added = terms.sum(2) + _shifted(own, own_exponent - top + (form.fraction - _FP32.mantissa))
    excess = (_bit_length(added) - form.bits).clamp_min(0)
    added = torch.where(added < 0, -((-added >> excess) << excess), (added >> excess) << excess)
    result = torch.ldexp(added.double(), top - form.fraction).float()
    return torch.where(added == 0, 0.0, result)


def chain(a: torch.Tensor, b: torch.Tensor, form: Instruction) -> torch.Tensor:
    """The accumulator, from zero, of all slices of a [M, K] times b [N, K] in ascending order: fp32 [M, N]."""
    a, b, depth = a.float(), b.float(), form.depth
    missing = -a.shape[1] % depth
    if missing:
        a, b = (torch.nn.functional.pad(x, (0, missing)) for x in (a, b))
    parts = []
    for rows in a.split(ROWS):
        total = rows.new_zeros(len(rows), len(b))
        for first in range(0, a.shape[1], depth):
            total = add_slice(total, rows[:, first : first + depth], b[:, first : first + depth], form)
        parts.append(total)
    return torch.cat(parts) if parts else a.new_zeros(0, len(b))


def fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """x * y + z of fp32, rounded once, to nearest even. The product of x and y must be exact in float64, as for fp32 it is."""
    product, addend = x.double() * y.double(), z.double()
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)  # Knuth's two-sum: product + addend = total + error
    # Rounded to odd, float64 keeps what a second rounding, to fp32, has to know (Boldo and Melquiond, 2008).
    as_bits = total.view(torch.int64)
    even = (error != 0) & (as_bits & 1 == 0) & total.isfinite()
    outward = (error > 0) == (total > 0)
    odd = torch.where(even, as_bits + torch.where(outward, 1, -1), as_bits)
    return odd.view(torch.float64).float()


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, splits: int = 1
) -> torch.Tensor:
    """a [M, K] times weight [N, K] transposed as kernels/cuda/fp8_gemm computes it with ascending slices -> [M, N].

    Each 128 of K are a chain of MMAs, multiplied by the product of both scales, and added by a fused operation. K is divided into
    `splits` parts, whose sums are added in order.
    """
    values, weight = a.values.float(), weight.float()
    blocks, columns = a.scales.shape[1], weight.shape[0]
    totals = []
    for part in range(splits):
        total = values.new_zeros(len(values), columns)
        for block in range(blocks * part // splits, blocks * (part + 1) // splits):
            some = slice(block * GROUP, (block + 1) * GROUP)
            column_scales = weight_scale[:, block].repeat_interleave(GROUP)[:columns]
            scales = a.scales[:, block, None] * column_scales
            total = fma(chain(values[:, some], weight[:, some], E4M3), scales, total)
        totals.append(total)
    out = totals[0]
    for total in totals[1:]:
        out = out + total
    return out.to(out_dtype)


def grouped_gemm(
    a: Quantized, weights: Sequence[Quantized], offsets: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """Rows of a sorted by expert, each expert's with its own weight (values [N, K] and block scales) -> [M, N]."""
    parts = [
        fp8_gemm(Quantized(a.values[start:end], a.scales[start:end]), *weight, out_dtype)
        for weight, (start, end) in zip(weights, pairwise(offsets.tolist()), strict=True)
    ]
    return torch.cat(parts)


def linear(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    """x bf16 [M, K] times weight bf16 [N, K] transposed, one chain of MMAs over K -> [M, N]."""
    return chain(x, weight, BF16).to(out_dtype)


def indexer_logits(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, k_scale: torch.Tensor) -> torch.Tensor:
    """Scores of all keys k e4m3 [S, 128] for queries q e4m3 [T, H, 128] with weights fp32 [T, H] -> fp32 [T, S].

    Sums have the order of kernels/cuda/lightning_indexer. A thread has every fourth pair of heads. It adds the even heads, and the
    odd ones in units of 2^25, in ascending order; then both sums; then the four threads' sums are added.
    """
    tokens, heads, _ = q.shape
    products = chain(k, q.flatten(0, 1), E4M3).T.unflatten(0, (tokens, heads)).clamp_min(0)  # [T, H, S]
    by_thread = []
    for thread in range(4):
        sums: list[torch.Tensor | None] = [None, None]
        for head in range(2 * thread, heads, 8):
            for odd, unit in enumerate((1.0, 2.0**-25)):
                x, w = products[:, head + odd] * unit, weights[:, head + odd, None].expand(-1, len(k))
                before = sums[odd]
                sums[odd] = x * w if before is None else fma(x, w, before)
        even, rest = sums
        assert even is not None and rest is not None
        by_thread.append(fma(rest, torch.full_like(rest, 2.0**25), even))
    total = (by_thread[0] + by_thread[2]) + (by_thread[1] + by_thread[3])
    return total * k_scale
