"""FP8 quantisation by itself and fused with the operation before it: RMSNorm (with the addition of the residual) or SwiGLU.

Without a norm, each group of 128 elements is independent and takes 8 lanes. With a norm, a thread block takes one row, and keeps it
in registers between the sum of squares and the quantisation.
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned
from .factory import tile_kernel
from .lanes import APART, GROUP, LANES, PASSES, PIECE, dtype_name, flat, in_pieces, load, quantize, rounded, store

THREADS = 256


def column_of(group: Any, piece: Any, tx: Any) -> Any:
    """Return the first column of a thread's piece of a group."""
    return group * GROUP + piece * APART + tx % LANES * PIECE


@T.macro
def silu_times(gate: Any, at: Any, up: Any, dtype: str) -> None:
    """gate = silu(gate) * up in fp32, rounded once to `dtype`."""
    for i in T.unroll(PIECE):
        gate[at + i] = gate[at + i] * T.fast_rcp(1.0 + T.exp(-gate[at + i])) * up[i]
    rounded(gate, at, dtype)


@tile_kernel(
    ("bfloat16", True, True, False, False),
    ("bfloat16", True, True, True, False),
    ("bfloat16", True, True, True, True),
    ("float32", False, False, False, False),
    ("bfloat16", False, False, True, False),
    pass_configs=PASSES,
)
def quantize_groups_kernel(dtype: str, aligned: bool, ue8m0: bool, gated: bool, counted: bool) -> Any:
    """Quantise x [rows, width], or silu(x[:, :width]) * x[:, width:] if `gated`, to codes [rows, width] and scales.

    `pitch` and `width` are in pieces if `aligned`. Rows from count[0] on are left out if `counted`; else it is None.
    """
    elements, results = T.dynamic("elements", "int64"), T.dynamic("results", "int64")
    rows, groups, counts = T.dynamic("rows"), T.dynamic("groups"), T.dynamic("counts")
    unit = PIECE if aligned else 1

    @T.prim_func
    def quantize_groups(
        x: T.Tensor((elements,), dtype),
        codes: T.Tensor((results,), "float8_e4m3fn"),
        scales: T.Tensor((rows, groups), "float32"),
        count: T.Tensor((counts,), "int32"),
        pitch: T.int32,
        width: T.int32,
    ):
        with T.Kernel(T.ceildiv(rows * groups, THREADS // LANES), threads=THREADS) as block:
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            row, group, end = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            end = rows
            if counted:
                end = T.min(rows, count[0])
            if not counted or block * (THREADS // LANES) < end * groups:  # not a block of rows that do not count
                row = T.truncdiv(block * (THREADS // LANES) + tx // LANES, groups)
                group = block * (THREADS // LANES) + tx // LANES - row * groups
                values, up = T.alloc_local((2 * PIECE,), "float32"), T.alloc_local((PIECE,), "float32")
                for piece in T.unroll(2):
                    column = column_of(group, piece, tx) // unit
                    valid = T.if_then_else(row < end, width - column, 0)
                    load(values, piece * PIECE, x, row * pitch + column, valid, aligned)
                    if gated:
                        load(up, 0, x, row * pitch + width + column, valid, aligned)
                        silu_times(values, piece * PIECE, up, dtype)
                scale = T.alloc_local((1,), "float32")
                quantize(values, 0, scale, ue8m0)
                if (tx % LANES == 0) & (row < end):
                    scales[row, group] = scale[0]
                for piece in T.unroll(2):
                    column = column_of(group, piece, tx) // unit
                    valid = T.if_then_else(row < end, width - column, 0)
                    store(codes, row * width + column, values, piece * PIECE, valid, aligned)

    return quantize_groups


def _quantize_groups(
    x: torch.Tensor, width: int, ue8m0: bool, count: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = x.shape[0]
    values = x.new_empty(rows, width, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(rows, -(-width // GROUP), dtype=torch.float32)
    if values.numel():
        aligned = in_pieces(x, width)
        unit = PIECE if aligned else 1
        gated, counted = x.shape[1] != width, count is not None
        kernel = quantize_groups_kernel(dtype_name(x.dtype), aligned, ue8m0, gated, counted)
        kernel(flat(x), values.view(-1), scales, count, x.stride(0) // unit, width // unit)
    return values, scales


def quantize_blocks(x: torch.Tensor, ue8m0: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    values, scales = _quantize_groups(x.reshape(-1, x.shape[-1]), x.shape[-1], ue8m0)
    return values.view(x.shape), scales.view(*x.shape[:-1], scales.shape[1])


def swiglu_quantize(
    gate_up: torch.Tensor, ue8m0: bool = True, count: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    return _quantize_groups(gate_up, gate_up.shape[1] // 2, ue8m0, count)


@tile_kernel(
    ("bfloat16", 448, 1, True, True, True),
    ("bfloat16", 96, 1, True, False, True),
    ("float32", 32, 2, False, True, False),
    pass_configs=PASSES,
)
def rms_norm_quantize_kernel(dtype: str, threads: int, parts: int, aligned: bool, adds: bool, ue8m0: bool) -> Any:
    """RMSNorm and quantisation of rows of up to threads * parts * 16 elements. `residual` and `total` are used only if it `adds`.

    `pitch`, `residual_pitch` and `width` are in pieces if `aligned`.
    """
    elements, others = T.dynamic("elements", "int64"), T.dynamic("others", "int64")
    totals, results = T.dynamic("totals", "int64"), T.dynamic("results", "int64")
    rows, groups, columns = T.dynamic("rows"), T.dynamic("groups"), T.dynamic("columns")
    unit = PIECE if aligned else 1
    warps = threads // 32

    @T.prim_func
    def rms_norm_quantize(
        x: T.Tensor((elements,), dtype),
        residual: T.Tensor((others,), dtype),
        weight: T.Tensor((columns,), "float32"),
        total: T.Tensor((totals,), dtype),
        normed: T.Tensor((results,), dtype),
        codes: T.Tensor((results,), "float8_e4m3fn"),
        scales: T.Tensor((rows, groups), "float32"),
        pitch: T.int32,
        residual_pitch: T.int32,
        width: T.int32,
        eps: T.float32,
    ):
        with T.Kernel(rows, threads=threads) as row:
            tx = T.get_thread_binding()
            values, others, gains = (T.alloc_local((parts * 2 * PIECE,), "float32") for _ in range(3))
            squares, factor = T.alloc_var("float32"), T.alloc_var("float32")
            T.pdl_trigger()
            T.pdl_sync()
            for piece in T.unroll(parts * 2):  # all loads before the first use
                column = column_of(piece // 2 * (threads // LANES) + tx // LANES, piece % 2, tx) // unit
                load(values, piece * PIECE, x, row * pitch + column, width - column, aligned)
                if adds:
                    load(others, piece * PIECE, residual, row * residual_pitch + column, width - column, aligned)
                load(gains, piece * PIECE, weight, column, width - column, aligned)
            squares = 0.0
            for piece in T.unroll(parts * 2):
                if adds:
                    column = column_of(piece // 2 * (threads // LANES) + tx // LANES, piece % 2, tx) // unit
                    for i in T.unroll(PIECE):
                        values[piece * PIECE + i] = values[piece * PIECE + i] + others[piece * PIECE + i]
                    rounded(values, piece * PIECE, dtype)
                    store(total, row * width + column, values, piece * PIECE, width - column, aligned)
                for i in T.unroll(PIECE):
                    squares = squares + values[piece * PIECE + i] * values[piece * PIECE + i]
            squares = T.warp_reduce_sum(squares)
            sums = T.alloc_shared((warps,), "float32")
            if tx % 32 == 0:
                sums[tx // 32] = squares
            T.sync_threads()
            squares = 0.0
            for warp in T.unroll(warps):
                squares = squares + sums[warp]
            factor = T.ieee_frcp(T.ieee_fsqrt(T.ieee_fdiv(squares, T.cast(width * unit, "float32")) + eps))
            for piece in T.unroll(parts * 2):
                column = column_of(piece // 2 * (threads // LANES) + tx // LANES, piece % 2, tx) // unit
                for i in T.unroll(PIECE):
                    values[piece * PIECE + i] = values[piece * PIECE + i] * factor * gains[piece * PIECE + i]
                rounded(values, piece * PIECE, dtype)
                store(normed, row * width + column, values, piece * PIECE, width - column, aligned)
            scale = T.alloc_local((1,), "float32")
            for part in T.unroll(parts):
                quantize(values, part * 2 * PIECE, scale, ue8m0)
                group = part * (threads // LANES) + tx // LANES
                if (tx % LANES == 0) & (group < groups):
                    scales[row, group] = scale[0]
                for piece in T.unroll(2):
                    column = column_of(group, piece, tx) // unit
                    store(codes, row * width + column, values, (part * 2 + piece) * PIECE, width - column, aligned)

    return rms_norm_quantize


def rms_norm_quantize(
    x: torch.Tensor, weight: torch.Tensor, eps: float, ue8m0: bool = True, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, width = x.shape
    groups = -(-width // GROUP)
    total = x if residual is None else x.new_empty(rows, width)
    normed = x.new_empty(rows, width)
    values = x.new_empty(rows, width, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(rows, groups, dtype=torch.float32)
    if not x.numel():
        return total, normed, values, scales
    other = x if residual is None else residual
    aligned = in_pieces(x, width) and in_pieces(other, width) and is_aligned(weight)
    unit = PIECE if aligned else 1
    parts = -(-groups * LANES // 1024)
    threads = -(-groups * LANES // (32 * parts)) * 32
    kernel = rms_norm_quantize_kernel(dtype_name(x.dtype), threads, parts, aligned, residual is not None, ue8m0)
    operands = flat(x), flat(other), weight, flat(total), normed.view(-1), values.view(-1), scales
    kernel(*operands, x.stride(0) // unit, other.stride(0) // unit, width // unit, eps)
    return total, normed, values, scales
