"""Writes to the paged latent caches, a warp for each token.

The kernels get several views of the memory of a uint8 cache, one for each type that a record holds (e4m3, fp32, bf16). Those
that are `stamped` store a stamp with each entry (kernels/cache_stamps.py); the others get None for `column` and `stamps`.
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned
from ..types import Stamp
from .factory import tile_kernel
from .lanes import (
    GROUP,
    LANES,
    PASSES,
    PIECE,
    WARP,
    WARPS,
    begin,
    column_of,
    dtype_name,
    flat,
    in_pieces,
    load,
    quantize,
    rounded,
    slot_of,
    spans,
    store,
)


@T.macro
def load_latent(
    values: Any, gains: Any, kv: Any, start: Any, weight: Any, width: int, exists: Any, aligned: bool, lane: Any
) -> None:
    """Load a warp's row, and the weight of the norm."""
    unit = PIECE if aligned else 1
    for piece in T.unroll(2 * spans(width)):
        column = column_of(piece // 2, piece % 2, lane)
        load(values, piece * PIECE, kv, start + column // unit, T.if_then_else(exists, width - column, 0), aligned)
        load(gains, piece * PIECE, weight, column // unit, width - column, aligned)


@T.macro
def norm(values: Any, gains: Any, width: int, eps: Any, dtype: str) -> None:
    """RMSNorm of a warp's row, rounded to `dtype`."""
    squares, factor = T.alloc_var("float32"), T.alloc_var("float32")
    squares = 0.0
    for i in T.unroll(2 * spans(width) * PIECE):
        squares = squares + values[i] * values[i]
    squares = T.warp_reduce_sum(squares)
    factor = T.ieee_frcp(T.ieee_fsqrt(T.ieee_fdiv(squares, float(width)) + eps))
    for i in T.unroll(2 * spans(width) * PIECE):
        values[i] = values[i] * factor * gains[i]
    for piece in T.unroll(2 * spans(width)):
        rounded(values, piece * PIECE, dtype)


@T.macro
def write_rope(
    out: Any,
    slot: Any,
    first: int,
    kv: Any,
    start: Any,
    cos: Any,
    sin: Any,
    token: Any,
    rope: int,
    exists: Any,
    lane: Any,
) -> None:
    """Write kv[start:start + rope] after interleaved RoPE, rounded as in the reference, to columns `first` onwards."""
    half = rope // 2
    for step in T.unroll(-(-half // WARP)):
        pair = step * WARP + lane
        if exists & (pair < half):
            even, odd = T.cast(kv[start + 2 * pair], "float32"), T.cast(kv[start + 2 * pair + 1], "float32")
            cosine, sine = cos[token * half + pair], sin[token * half + pair]
            turned = T.alloc_local((2,), kv.dtype)
            turned[0] = T.cast(T.ieee_sub(T.ieee_mul(even, cosine), T.ieee_mul(odd, sine)), kv.dtype)
            turned[1] = T.cast(T.ieee_add(T.ieee_mul(even, sine), T.ieee_mul(odd, cosine)), kv.dtype)
            for i in T.vectorized(2):
                out[slot, first + 2 * pair + i] = T.cast(turned[i], out.dtype)


@tile_kernel(
    ("bfloat16", 512, 64, True, True, False),
    ("bfloat16", 512, 64, True, True, True),
    ("float32", 256, 32, False, False, False),
    pass_configs=PASSES,
)
def write_latent_records_kernel(dtype: str, width: int, rope: int, aligned: bool, whole: bool, stamped: bool) -> Any:
    """Write FP8 records. `pitch` is in pieces if `aligned`; records begin at multiples of 8 bytes if `whole`, else of 4."""
    elements, angles = T.dynamic("elements", "int64"), T.dynamic("angles")
    rows, tokens, stamp_slots = T.dynamic("rows"), T.dynamic("tokens"), T.dynamic("stamp_slots")
    record = width + width // GROUP * 4 + 2 * rope
    written = 8 if whole else 4  # bytes at once

    @T.prim_func
    def write_latent_records(
        kv: T.Tensor((elements,), dtype),
        weight: T.Tensor((width,), "float32"),
        cos: T.Tensor((angles,), "float32"),
        sin: T.Tensor((angles,), "float32"),
        slots: T.Tensor((rows,), "int64"),
        codes: T.Tensor((tokens, record), "float8_e4m3fn"),
        scales: T.Tensor((tokens, record // 4), "float32"),
        ropes: T.Tensor((tokens, record // 2), "bfloat16"),
        column: T.Tensor((stamp_slots,), "int32"),
        stamps: T.Tensor((rows,), "int32"),
        pitch: T.int32,
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(rows, WARPS), threads=WARPS * WARP) as block:
            lane, row = begin(block, WARP, WARPS)
            slot = slot_of(slots, row, rows, column, stamps, stamped, lane)
            values, gains = (T.alloc_local((2 * spans(width) * PIECE,), "float32") for _ in range(2))
            load_latent(values, gains, kv, row * pitch, weight, width, row < rows, aligned, lane)
            start = row * pitch * (PIECE if aligned else 1) + width
            write_rope(ropes, slot, (record - 2 * rope) // 2, kv, start, cos, sin, row, rope, row < rows, lane)
            norm(values, gains, width, eps, dtype)
            scale = T.alloc_local((1,), "float32")
            for span in T.unroll(spans(width)):
                quantize(values, span * 2 * PIECE, scale, True)
                if (lane % LANES == 0) & (row < rows) & (column_of(span, 0, lane) < width):
                    scales[slot, width // 4 + span * (WARP // LANES) + lane // LANES] = scale[0]
                for piece in T.unroll(2):
                    column = column_of(span, piece, lane)
                    if (row < rows) & (column < width):
                        raw = T.alloc_local((PIECE,), "float8_e4m3fn")
                        for i in T.vectorized(PIECE):
                            raw[i] = T.cast(values[(span * 2 + piece) * PIECE + i], "float8_e4m3fn")
                        for part in T.unroll(PIECE // written):
                            for i in T.vectorized(written):
                                codes[slot, column + part * written + i] = raw[part * written + i]

    return write_latent_records


@tile_kernel(
    ("bfloat16", "bfloat16", 512, 64, True, False), ("float32", "float32", 40, 6, False, True), pass_configs=PASSES
)
def write_latent_rows_kernel(dtype: str, cached: str, width: int, rope: int, aligned: bool, stamped: bool) -> Any:
    """Write plain rows of dtype `cached`. `pitch` is in pieces if `aligned`."""
    elements, results, angles = T.dynamic("elements", "int64"), T.dynamic("results", "int64"), T.dynamic("angles")
    rows, tokens, stamp_slots = T.dynamic("rows"), T.dynamic("tokens"), T.dynamic("stamp_slots")
    unit = PIECE if aligned else 1

    @T.prim_func
    def write_latent_rows(
        kv: T.Tensor((elements,), dtype),
        weight: T.Tensor((width,), "float32"),
        cos: T.Tensor((angles,), "float32"),
        sin: T.Tensor((angles,), "float32"),
        slots: T.Tensor((rows,), "int64"),
        cache: T.Tensor((results,), cached),
        ropes: T.Tensor((tokens, width + rope), cached),
        column: T.Tensor((stamp_slots,), "int32"),
        stamps: T.Tensor((rows,), "int32"),
        pitch: T.int32,
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(rows, WARPS), threads=WARPS * WARP) as block:
            lane, row = begin(block, WARP, WARPS)
            slot = slot_of(slots, row, rows, column, stamps, stamped, lane)
            values, gains = (T.alloc_local((2 * spans(width) * PIECE,), "float32") for _ in range(2))
            load_latent(values, gains, kv, row * pitch, weight, width, row < rows, aligned, lane)
            write_rope(ropes, slot, width, kv, row * pitch * unit + width, cos, sin, row, rope, row < rows, lane)
            norm(values, gains, width, eps, dtype)
            for piece in T.unroll(2 * spans(width)):
                column = column_of(piece // 2, piece % 2, lane)
                valid = T.if_then_else(row < rows, width - column, 0)
                store(cache, slot * ((width + rope) // unit) + column // unit, values, piece * PIECE, valid, aligned)

    return write_latent_rows


def write_latent_cache(
    kv: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    stamp: Stamp | None,
) -> None:
    if not len(slots):
        return
    width, rope = norm_weight.shape[0], 2 * cos.shape[1]
    rows = cache.view(-1, cache.shape[-1])
    aligned = in_pieces(kv, width) and is_aligned(norm_weight)
    if cache.dtype != torch.uint8:
        aligned = aligned and in_pieces(rows, width)
    pitch = kv.stride(0) // (PIECE if aligned else 1)
    inputs = flat(kv), norm_weight, cos.reshape(-1), sin.reshape(-1), slots
    if cache.dtype == torch.uint8:
        views = (rows.view(dtype) for dtype in (torch.float8_e4m3fn, torch.float32, torch.bfloat16))
        kernel = write_latent_records_kernel(
            dtype_name(kv.dtype), width, rope, aligned, is_aligned(rows, multiple=PIECE), stamp is not None
        )
        kernel(*inputs, *views, *(stamp or (None, None)), pitch, eps)
    else:
        names = dtype_name(kv.dtype), dtype_name(cache.dtype)
        kernel = write_latent_rows_kernel(*names, width, rope, aligned, stamp is not None)
        kernel(*inputs, rows.view(-1), rows, *(stamp or (None, None)), pitch, eps)
