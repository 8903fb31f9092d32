"""Writes to and reads from the paged caches. A warp handles the latent of a token, 8 lanes each group; 8 lanes an index key.

The kernels get several views of the memory of a uint8 cache, one for each type that a record holds (e4m3, fp32, bf16). Those
that are `stamped` store a stamp beside each entry (kernels/cache_stamps.py); the others get None for `column` and `stamps`.
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned
from ..cache_stamps import Stamp
from ..reference import cache_write as reference
from .factory import tile_kernel
from .hadamard import ROWS, THREADS, held, load_row, rotate, store_row, transform
from .lanes import APART, GROUP, LANES, PASSES, PIECE, dtype_name, flat, in_pieces, load, quantize, rounded, store

WARP = 32
WARPS = 4

FALLS_BACK = {"gather_latents": "torch for bf16 and fp32 caches"}


def spans(width: int) -> int:
    """The number of times that a warp, four groups wide, covers a row."""
    return -(-width // (WARP // LANES * GROUP))


@T.macro
def column_of(span: Any, piece: Any, lane: Any) -> Any:
    return (span * (WARP // LANES) + lane // LANES) * GROUP + piece * APART + lane % LANES * PIECE


@T.macro
def store_stamp(column: Any, slot: Any, stamps: Any, row: Any, lane: Any) -> None:
    if lane == 0:
        column[slot] = stamps[row]


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
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % WARP
            row = block * WARPS + tx // WARP
            slot = T.alloc_var("int64")
            slot = 0
            if row < rows:
                slot = slots[row]
                if stamped:
                    store_stamp(column, slot, stamps, row, lane)
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
                        if whole:
                            for i in T.vectorized(PIECE):
                                codes[slot, column + i] = raw[i]
                        else:
                            for part in T.unroll(2):
                                for i in T.vectorized(4):
                                    codes[slot, column + part * 4 + i] = raw[part * 4 + i]

    return write_latent_records


@tile_kernel(
    ("bfloat16", "bfloat16", 512, 64, True, False),
    ("float32", "float32", 40, 6, False, True),
    pass_configs=PASSES,
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
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % WARP
            row = block * WARPS + tx // WARP
            slot = T.alloc_var("int64")
            slot = 0
            if row < rows:
                slot = slots[row]
                if stamped:
                    store_stamp(column, slot, stamps, row, lane)
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


@tile_kernel(("bfloat16", 512, 64, True), ("float32", 256, 32, False), pass_configs=PASSES)
def gather_latents_kernel(dtype: str, width: int, rope: int, whole: bool) -> Any:
    """Read the records of `slots` to rows of `dtype`, one warp each. Records begin at multiples of 8 bytes if `whole`, or of 4."""
    rows, tokens = T.dynamic("rows"), T.dynamic("tokens")
    record = width + width // GROUP * 4 + 2 * rope
    parts = 1 if whole else 2

    @T.prim_func
    def gather_latents(
        codes: T.Tensor((tokens, record), "float8_e4m3fn"),
        scales: T.Tensor((tokens, record // 4), "float32"),
        ropes: T.Tensor((tokens, record // 2), "bfloat16"),
        slots: T.Tensor((rows,), "int64"),
        out: T.Tensor((rows, width + rope), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, WARPS), threads=WARPS * WARP) as block:
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % WARP
            row = block * WARPS + tx // WARP
            slot = T.alloc_var("int64")
            if row < rows:
                slot = slots[row]
                for step in T.unroll(-(-rope // (2 * WARP))):
                    column = (step * WARP + lane) * 2
                    if column < rope:
                        for i in T.vectorized(2):
                            out[row, width + column + i] = T.cast(
                                ropes[slot, (record - 2 * rope) // 2 + column + i], dtype
                            )
                for piece in T.unroll(2 * spans(width)):
                    column = column_of(piece // 2, piece % 2, lane)
                    if column < width:
                        raw, values = T.alloc_local((PIECE,), "float8_e4m3fn"), T.alloc_local((PIECE,), "float32")
                        for part in T.unroll(parts):
                            for i in T.vectorized(PIECE // parts):
                                raw[part * (PIECE // parts) + i] = codes[slot, column + part * (PIECE // parts) + i]
                        for i in T.vectorized(PIECE):
                            values[i] = T.cast(raw[i], "float32")
                        for i in T.unroll(PIECE):
                            values[i] = values[i] * scales[slot, width // 4 + column // GROUP]
                        for i in T.vectorized(PIECE):
                            out[row, column + i] = T.cast(values[i], dtype)

    return gather_latents


def gather_latents(cache: torch.Tensor, slots: torch.Tensor, latent_dim: int, dtype: torch.dtype) -> torch.Tensor:
    if cache.dtype != torch.uint8:  # plain rows, which torch gathers as fast as any kernel
        return reference.gather_latents(cache, slots, latent_dim, dtype)
    records = cache.view(-1, cache.shape[-1])
    rope = (records.shape[1] - latent_dim // GROUP * 4 - latent_dim) // 2
    out = torch.empty(*slots.shape, latent_dim + rope, dtype=dtype, device=cache.device)
    if slots.numel():
        views = (records.view(kind) for kind in (torch.float8_e4m3fn, torch.float32, torch.bfloat16))
        kernel = gather_latents_kernel(dtype_name(dtype), latent_dim, rope, is_aligned(records, multiple=PIECE))
        kernel(*views, slots.reshape(-1), out.view(-1, latent_dim + rope))
    return out


@tile_kernel(
    ("bfloat16", 128, 64, False, 64, True, False),
    ("bfloat16", 128, 64, False, 64, True, True),
    ("float32", 128, 64, True, 1, False, False),
    pass_configs=PASSES,
)
def write_index_pages_kernel(
    dtype: str, width: int, rope: int, interleaved: bool, page: int, aligned: bool, stamped: bool
) -> Any:
    """Write FP8 pages: `page` keys, then their scales. If `aligned`, `pitch` is in pieces, and pages begin at 8-byte boundaries."""
    elements, results, angles = T.dynamic("elements", "int64"), T.dynamic("results", "int64"), T.dynamic("angles")
    rows, pages, stamp_slots = T.dynamic("rows"), T.dynamic("pages"), T.dynamic("stamp_slots")
    size = page * (width + 4)

    @T.prim_func
    def write_index_pages(
        keys: T.Tensor((elements,), dtype),
        cos: T.Tensor((angles,), "float32"),
        sin: T.Tensor((angles,), "float32"),
        slots: T.Tensor((rows,), "int64"),
        codes: T.Tensor((results,), "float8_e4m3fn"),
        scales: T.Tensor((pages, size // 4), "float32"),
        column: T.Tensor((stamp_slots,), "int32"),
        stamps: T.Tensor((rows,), "int32"),
        pitch: T.int32,
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=THREADS) as block:
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % LANES
            row = block * ROWS + tx // LANES
            slot = T.alloc_var("int64")
            slot = 0
            if row < rows:
                slot = slots[row]
                if stamped:
                    store_stamp(column, slot, stamps, row, lane)
            values, scale = T.alloc_local((held(width),), "float32"), T.alloc_local((1,), "float32")
            load_row(values, keys, row * pitch, width, row < rows, aligned, lane)
            rotate(values, keys, row * pitch, cos, sin, row, rope, interleaved, row < rows, aligned, lane)
            transform(values, width, width**-0.5, dtype, lane)
            quantize(values, 0, scale, True)
            number, offset = T.alloc_var("int64"), T.alloc_var("int64")
            number = T.truncdiv(slot, T.int64(page))
            offset = slot - number * page
            if (lane == 0) & (row < rows):
                scales[number, page * width // 4 + offset] = scale[0]
            unit = PIECE if aligned else 1
            start = number * (size // unit) + offset * (width // unit)
            store_row(codes, start, values, width, row < rows, aligned, lane)

    return write_index_pages


@tile_kernel((128, 64), pass_configs=PASSES)
def gather_index_keys_kernel(width: int, page: int) -> Any:
    """Read the keys and scales of `slots` from FP8 pages that begin at multiples of 16 bytes, eight lanes a key of 128 dims."""
    results = T.dynamic("results", "int64")
    rows, pages = T.dynamic("rows"), T.dynamic("pages")
    size = page * (width + 4)
    held_bytes = width // LANES

    @T.prim_func
    def gather_index_keys(
        codes: T.Tensor((results,), "float8_e4m3fn"),
        scales: T.Tensor((pages, size // 4), "float32"),
        slots: T.Tensor((rows,), "int64"),
        keys: T.Tensor((rows, width), "float8_e4m3fn"),
        key_scales: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=THREADS) as block:
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % LANES
            row = block * ROWS + tx // LANES
            if row < rows:
                number, offset = T.alloc_var("int64"), T.alloc_var("int64")
                number = T.truncdiv(slots[row], T.int64(page))
                offset = slots[row] - number * page
                for i in T.vectorized(held_bytes):
                    keys[row, lane * held_bytes + i] = codes[number * size + offset * width + lane * held_bytes + i]
                if lane == 0:
                    key_scales[row] = scales[number, page * width // 4 + offset]

    return gather_index_keys


def gather_index_keys(cache: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    width, page = cache.shape[-1] - 4, cache.shape[1]
    # Eight lanes read 16 bytes each, so a page must be a multiple of that.
    if cache.dtype != torch.uint8 or width != 16 * LANES or page % 4 or not cache.is_contiguous() or not len(slots):
        return reference.gather_index_keys(cache, slots)
    pages = cache.view(len(cache), -1)
    if not is_aligned(pages):
        return reference.gather_index_keys(cache, slots)
    keys = torch.empty(len(slots), width, dtype=torch.float8_e4m3fn, device=cache.device)
    scales = torch.empty(len(slots), dtype=torch.float32, device=cache.device)
    codes = pages.view(torch.float8_e4m3fn).view(-1)
    gather_index_keys_kernel(width, page)(codes, pages.view(torch.float32), slots.contiguous(), keys, scales)
    return keys, scales


@tile_kernel(
    ("bfloat16", "bfloat16", 128, 64, False, True, False),
    ("bfloat16", "bfloat16", 128, 64, False, True, True),
    pass_configs=PASSES,
)
def write_index_rows_kernel(
    dtype: str, cached: str, width: int, rope: int, interleaved: bool, aligned: bool, stamped: bool
) -> Any:
    """Write plain rows of dtype `cached`, without the Hadamard transform. `pitch` is in pieces if `aligned`."""
    elements, results, angles = T.dynamic("elements", "int64"), T.dynamic("results", "int64"), T.dynamic("angles")
    rows, stamp_slots = T.dynamic("rows"), T.dynamic("stamp_slots")

    @T.prim_func
    def write_index_rows(
        keys: T.Tensor((elements,), dtype),
        cos: T.Tensor((angles,), "float32"),
        sin: T.Tensor((angles,), "float32"),
        slots: T.Tensor((rows,), "int64"),
        cache: T.Tensor((results,), cached),
        column: T.Tensor((stamp_slots,), "int32"),
        stamps: T.Tensor((rows,), "int32"),
        pitch: T.int32,
    ):
        with T.Kernel(T.ceildiv(rows, ROWS), threads=THREADS) as block:
            tx = T.get_thread_binding()
            T.pdl_trigger()
            T.pdl_sync()
            lane = tx % LANES
            row = block * ROWS + tx // LANES
            slot = T.alloc_var("int64")
            slot = 0
            if row < rows:
                slot = slots[row]
                if stamped:
                    store_stamp(column, slot, stamps, row, lane)
            values = T.alloc_local((held(width),), "float32")
            load_row(values, keys, row * pitch, width, row < rows, aligned, lane)
            rotate(values, keys, row * pitch, cos, sin, row, rope, interleaved, row < rows, aligned, lane)
            store_row(cache, slot * (width // (PIECE if aligned else 1)), values, width, row < rows, aligned, lane)

    return write_index_rows


def write_index_cache(
    keys: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    interleaved: bool,
    stamp: Stamp | None,
) -> None:
    if not len(slots):
        return
    page, width, rope = cache.shape[1], keys.shape[1], 2 * cos.shape[1]
    aligned = in_pieces(keys, width)
    inputs = flat(keys), cos.reshape(-1), sin.reshape(-1), slots
    if cache.dtype == torch.uint8:
        pages = cache.view(len(cache), -1)
        aligned = aligned and is_aligned(pages, multiple=PIECE)
        pitch = keys.stride(0) // (PIECE if aligned else 1)
        kernel = write_index_pages_kernel(
            dtype_name(keys.dtype), width, rope, interleaved, page, aligned, stamp is not None
        )
        views = pages.view(torch.float8_e4m3fn).view(-1), pages.view(torch.float32)
        kernel(*inputs, *views, *(stamp or (None, None)), pitch)
    else:
        aligned = aligned and is_aligned(cache.view(-1))
        pitch = keys.stride(0) // (PIECE if aligned else 1)
        names = dtype_name(keys.dtype), dtype_name(cache.dtype)
        kernel = write_index_rows_kernel(*names, width, rope, interleaved, aligned, stamp is not None)
        kernel(*inputs, cache.view(-1), *(stamp or (None, None)), pitch)
