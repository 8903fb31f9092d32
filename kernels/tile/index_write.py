"""Writes to the paged index caches, eight lanes for each key.

The kernels get several views of the memory of a uint8 cache, one for each type that a record holds (e4m3, fp32, bf16). Those
that are `stamped` store a stamp with each entry (kernels/cache_stamps.py); the others get None for `column` and `stamps`.
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned
from ..types import Stamp
from .factory import tile_kernel
from .hadamard import ROWS, THREADS, held, load_row, rotate, store_row, transform
from .lanes import LANES, PASSES, PIECE, begin, dtype_name, flat, in_pieces, quantize, slot_of


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
            lane, row = begin(block, LANES, ROWS)
            slot = slot_of(slots, row, rows, column, stamps, stamped, lane)
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
            lane, row = begin(block, LANES, ROWS)
            slot = slot_of(slots, row, rows, column, stamps, stamped, lane)
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
