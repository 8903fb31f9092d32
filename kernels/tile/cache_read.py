"""Reads from the paged FP8 caches: a warp for each latent, eight lanes for each index key.

The kernels get several views of the memory of a uint8 cache, one for each type that a record holds (e4m3, fp32, bf16).
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned
from ..reference import cache_write as reference
from .factory import tile_kernel
from .hadamard import ROWS, THREADS
from .lanes import GROUP, LANES, PASSES, PIECE, WARP, WARPS, begin, column_of, dtype_name, spans

FALLS_BACK = {"gather_latents": "torch for bf16 and fp32 caches, and pages that lie apart"}


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
            lane, row = begin(block, WARP, WARPS)
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
    if cache.dtype != torch.uint8 or not cache.is_contiguous():  # torch gathers plain rows as fast as any kernel
        return reference.gather_latents(cache, slots, latent_dim, dtype)
    records = cache.view(-1, cache.shape[-1])
    rope = (records.shape[1] - latent_dim // GROUP * 4 - latent_dim) // 2
    out = cache.new_empty(*slots.shape, latent_dim + rope, dtype=dtype)
    if slots.numel():
        views = (records.view(kind) for kind in (torch.float8_e4m3fn, torch.float32, torch.bfloat16))
        kernel = gather_latents_kernel(dtype_name(dtype), latent_dim, rope, is_aligned(records, multiple=PIECE))
        kernel(*views, slots.reshape(-1), out.view(-1, latent_dim + rope))
    return out


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
            lane, row = begin(block, LANES, ROWS)
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
    keys = cache.new_empty(len(slots), width, dtype=torch.float8_e4m3fn)
    scales = cache.new_empty(len(slots), dtype=torch.float32)
    codes = pages.view(torch.float8_e4m3fn).view(-1)
    gather_index_keys_kernel(width, page)(codes, pages.view(torch.float32), slots.contiguous(), keys, scales)
    return keys, scales
