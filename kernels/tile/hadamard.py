"""The Hadamard transform by itself and in the indexer's chain of RoPE, Hadamard transform and FP8 quantisation.

Eight lanes hold a row, in pieces as in lanes.py. Bits 0-2 of an element's index in its row are its position in a piece, bits 3-5
the lane, and the higher ones the piece. So butterflies with strides 8 to 32 are exchanges between lanes, and all others are local
to a lane.
"""

from typing import Any

import tilelang.language as T
import torch

from .factory import tile_kernel
from .lanes import (
    APART,
    GROUP,
    LANES,
    PASSES,
    PIECE,
    begin,
    dtype_name,
    flat,
    in_pieces,
    load,
    quantize,
    rounded,
    store,
)

THREADS = 128
ROWS = THREADS // LANES  # rows per thread block


def held(width: int) -> int:
    """Return the number of elements of a row that a lane holds: two pieces for each group of 128, the last perhaps partly empty."""
    return -(-width // GROUP) * 2 * PIECE


@T.macro
def load_row(values: Any, x: Any, start: Any, width: int, exists: Any, aligned: bool, lane: Any) -> None:
    """Load a lane's pieces of the row that begins at `start` (in pieces if `aligned`); zeros if it does not exist."""
    for piece in T.unroll(held(width) // PIECE):
        column = piece * APART + lane * PIECE
        valid = T.if_then_else(exists, width - column, 0)
        load(values, piece * PIECE, x, start + column // (PIECE if aligned else 1), valid, aligned)


@T.macro
def store_row(out: Any, start: Any, values: Any, width: int, exists: Any, aligned: bool, lane: Any) -> None:
    """Store a lane's pieces of a row; arguments as for `load_row`."""
    for piece in T.unroll(held(width) // PIECE):
        column = piece * APART + lane * PIECE
        valid = T.if_then_else(exists, width - column, 0)
        store(out, start + column // (PIECE if aligned else 1), values, piece * PIECE, valid, aligned)


@T.macro
def rotate(
    values: Any,
    x: Any,
    start: Any,
    cos: Any,
    sin: Any,
    token: Any,
    rope: int,
    interleaved: bool,
    exists: Any,
    aligned: bool,
    lane: Any,
) -> None:
    """RoPE of the first `rope` elements of a loaded row. The other element of each pair is read again, from the L1 cache.

    The products and their sum are rounded separately, as in the reference.
    """
    half = rope // 2
    for piece in T.unroll(-(-rope // APART)):
        column = piece * APART + lane * PIECE
        if aligned and not interleaved and half % PIECE == 0:
            first = column < half
            at = T.if_then_else(first, column, column - half) // PIECE
            partner = start + at + T.if_then_else(first, half // PIECE, 0)
            sign = T.if_then_else(first, -1.0, 1.0)
            valid = T.if_then_else(exists, rope - column, 0)
            other, cosines = T.alloc_local((PIECE,), "float32"), T.alloc_local((PIECE,), "float32")
            sines = T.alloc_local((PIECE,), "float32")
            load(other, 0, x, partner, valid, True)
            load(cosines, 0, cos, token * (half // PIECE) + at, valid, True)
            load(sines, 0, sin, token * (half // PIECE) + at, valid, True)
            if valid > 0:
                for i in T.unroll(PIECE):
                    values[piece * PIECE + i] = T.ieee_add(
                        T.ieee_mul(values[piece * PIECE + i], cosines[i]), T.ieee_mul(other[i], sign * sines[i])
                    )
        else:
            for i in T.unroll(PIECE):
                if exists & (column + i < rope):
                    first = (i % 2 == 0) if interleaved else (column + i < half)
                    step = 1 if interleaved else half
                    angle = (column + i) // 2 if interleaved else T.if_then_else(first, column + i, column + i - half)
                    partner = start * (PIECE if aligned else 1) + column + i + T.if_then_else(first, step, -step)
                    sign = T.if_then_else(first, -1.0, 1.0)
                    values[piece * PIECE + i] = T.ieee_add(
                        T.ieee_mul(values[piece * PIECE + i], cos[token * half + angle]),
                        T.ieee_mul(T.cast(x[partner], "float32"), sign * sin[token * half + angle]),
                    )
        rounded(values, piece * PIECE, x.dtype)


@T.macro
def butterflies(values: Any, count: int, stride: int) -> None:
    """(a, b) -> (a + b, a - b) for elements `stride` apart within a lane."""
    for pair in T.unroll(count // 2):
        low = pair // stride * (2 * stride) + pair % stride
        high = values[low + stride]
        first, second = T.alloc_var("float32"), T.alloc_var("float32")
        first = values[low] + high
        second = values[low] - high
        values[low] = first
        values[low + stride] = second


@T.macro
def transform(values: Any, width: int, scale: Any, dtype: str, lane: Any) -> None:
    """Multiply a row with the Sylvester matrix and `scale`, and round it to `dtype`. All lanes of the row must call it."""
    count = held(width)
    for stride in (1, 2, 4):
        if stride < width:
            butterflies(values, count, stride)
    for level in (1, 2, 4):
        if level * PIECE < width:
            sign = T.if_then_else((lane & level) != 0, -1.0, 1.0)
            for i in T.unroll(count):
                values[i] = T.shfl_xor(values[i], level) + sign * values[i]
    for stride in [PIECE << doubling for doubling in range(16) if APART << doubling < width]:
        butterflies(values, count, stride)
    for i in T.unroll(count):
        values[i] = values[i] * scale
    for piece in T.unroll(count // PIECE):
        rounded(values, piece * PIECE, dtype)


@tile_kernel(("bfloat16", 128, True), ("float32", 2, False), pass_configs=PASSES)
def hadamard_kernel(dtype: str, width: int, aligned: bool) -> Any:
    """Transform x [rows, width] to out [rows, width]. `pitch` is in pieces if `aligned`."""
    elements, results = T.dynamic("elements", "int64"), T.dynamic("results", "int64")

    @T.prim_func
    def hadamard(
        x: T.Tensor((elements,), dtype),
        out: T.Tensor((results,), dtype),
        rows: T.int32,
        pitch: T.int32,
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=THREADS) as block:
            lane, row = begin(block, LANES, ROWS)
            values = T.alloc_local((held(width),), "float32")
            load_row(values, x, row * pitch, width, row < rows, aligned, lane)
            transform(values, width, scale, dtype, lane)
            store_row(out, row * (width // (PIECE if aligned else 1)), values, width, row < rows, aligned, lane)

    return hadamard


def hadamard_transform(x: torch.Tensor, scale: float) -> torch.Tensor:
    out = x.new_empty(x.shape)
    if x.numel():
        width = x.shape[-1]
        rows = x.reshape(-1, width)
        aligned = in_pieces(rows, width)
        pitch = rows.stride(0) // (PIECE if aligned else 1)
        hadamard_kernel(dtype_name(x.dtype), width, aligned)(flat(rows), out.view(-1), rows.shape[0], pitch, scale)
    return out


@tile_kernel(
    ("bfloat16", 128, 64, False, True, True, True),
    ("bfloat16", 128, 64, True, True, True, False),
    ("float32", 128, 64, False, True, False, False),
    pass_configs=PASSES,
)
def rotate_quantize_kernel(
    dtype: str, width: int, rope: int, interleaved: bool, aligned: bool, ue8m0: bool, weighs: bool
) -> Any:
    """RoPE, transform and quantise x [rows, width], `heads` rows per token, to codes [rows, width] and scales.

    `pitch` is in pieces if `aligned`. If it `weighs`, `weighted` = weights [rows] times the scale of each row's first group;
    otherwise neither tensor is used.
    """
    elements, results, angles = T.dynamic("elements", "int64"), T.dynamic("results", "int64"), T.dynamic("angles")
    rows, weighed = T.dynamic("rows"), T.dynamic("weighed")
    groups = -(-width // GROUP)

    @T.prim_func
    def rotate_quantize(
        x: T.Tensor((elements,), dtype),
        cos: T.Tensor((angles,), "float32"),
        sin: T.Tensor((angles,), "float32"),
        codes: T.Tensor((results,), "float8_e4m3fn"),
        scales: T.Tensor((rows, groups), "float32"),
        weights: T.Tensor((weighed,), "float32"),
        weighted: T.Tensor((weighed,), "float32"),
        heads: T.int32,
        pitch: T.int32,
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=THREADS) as block:
            lane, row = begin(block, LANES, ROWS)
            token = T.alloc_var("int32")
            token = T.truncdiv(row, heads)
            values, scale = T.alloc_local((held(width),), "float32"), T.alloc_local((1,), "float32")
            load_row(values, x, row * pitch, width, row < rows, aligned, lane)
            rotate(values, x, row * pitch, cos, sin, token, rope, interleaved, row < rows, aligned, lane)
            transform(values, width, width**-0.5, dtype, lane)
            for group in T.unroll(groups):
                quantize(values, group * 2 * PIECE, scale, ue8m0)
                if (lane == 0) & (row < rows):
                    scales[row, group] = scale[0]
                    if weighs and group == 0:
                        weighted[row] = weights[row] * scale[0]
            store_row(codes, row * (width // (PIECE if aligned else 1)), values, width, row < rows, aligned, lane)

    return rotate_quantize


def rotate_quantize(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, ue8m0: bool, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    heads, width = x.shape[1:]
    values = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(*x.shape[:2], -(-width // GROUP), dtype=torch.float32)
    weighted = None if weights is None else x.new_empty(x.shape[:2], dtype=torch.float32)
    if x.numel():
        rows = x.reshape(-1, width)
        aligned = in_pieces(rows, width)
        rope, weighs = 2 * cos.shape[1], weights is not None
        kernel = rotate_quantize_kernel(dtype_name(x.dtype), width, rope, interleaved, aligned, ue8m0, weighs)
        inputs, results = (flat(rows), cos.reshape(-1), sin.reshape(-1)), (values.view(-1), scales.flatten(0, 1))
        both = (None, None) if weights is None or weighted is None else (weights.reshape(-1), weighted.view(-1))
        kernel(*inputs, *results, *both, heads, rows.stride(0) // (PIECE if aligned else 1))
    return values, scales, weighted
