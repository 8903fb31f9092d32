"""Block-scaled FP8 GEMM in TileLang: fp32 sums over slices of 128 of K; each slice is scaled before it is added.

128 tokens are the M of an MMA. Tiles of fewer tokens are swap-AB: the tokens are the N of an MMA, so that few of them do not waste
its M. They may split K (split-K); `add_splits` adds the partial sums in order. For grouped GEMMs a plan lists the tiles
(grouped_gemm.py).
"""

from collections.abc import Sequence
from typing import Any

import tilelang.language as T
import torch

from ..alignment import aligned_rows
from ..types import Quantized
from .factory import tile_kernel

FP8 = "float8_e4m3fn"
SLICE = 128  # of K: the range of a scale
TILE = 128  # rows of the weight in a tile; they share a scale
STAGE_BYTES = 200 * 1024  # of the 227 KB of shared memory
MULTIPROCESSORS = 132  # of an H100 or H200; K is split to fill them


@tile_kernel(
    (4096, 7168, False, 128, 1, "bfloat16"),
    (4096, 7168, True, 128, 1, "bfloat16"),
    (130, 200, True, 128, 1, "float32"),
    (4096, 7168, False, 16, 4, "float32"),
    (4096, 7168, True, 16, 1, "bfloat16"),
    (4096, 7168, False, 64, 4, "float32"),
)
def product(n: int, k: int, grouped: bool, tokens: int, splits: int, out_dtype: str) -> Any:
    """a [rows, k] times b[weight] [n, k] transposed -> out [splits, rows, n], a sum for each part of K."""
    slices = -(-k // SLICE)
    part_slices = -(-slices // splits)
    swap_ab = tokens < 128
    shape = (TILE, tokens) if swap_ab else (tokens, TILE)
    # With swap-AB, one thread block has a multiprocessor to itself.
    stages = min(part_slices, STAGE_BYTES // ((TILE + tokens) * SLICE)) if swap_ab else 6
    rows, slots, weights = T.dynamic("rows"), T.dynamic("slots"), T.dynamic("weights")

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, k), FP8),
        a_scale: T.Tensor((rows, slices), "float32"),
        b: T.Tensor((weights, n, k), FP8),
        b_scale: T.Tensor((weights, -(-n // TILE), slices), "float32"),
        plan: T.Tensor((slots, 3), "int32"),
        out: T.Tensor((splits, rows, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, TILE), slots, splits, threads=256) as (tile, slot, split):
            a_tile = T.alloc_shared((tokens, SLICE), FP8)
            b_tile = T.alloc_shared((TILE, SLICE), FP8)
            scale = T.alloc_fragment((tokens,), "float32")
            part, total = (T.alloc_fragment(shape, "float32") for _ in range(2))
            weight = plan[slot, 0] if grouped else 0
            first = plan[slot, 1] if grouped else slot * tokens
            last = plan[slot, 2] if grouped else rows
            if first < last:
                T.clear(total)
                for step in T.Pipelined(part_slices, num_stages=stages):
                    i = split * part_slices + step  # past the end of K, zeros are loaded
                    T.copy(a[first : first + tokens, i * SLICE : (i + 1) * SLICE], a_tile)
                    T.copy(b[weight, tile * TILE : (tile + 1) * TILE, i * SLICE : (i + 1) * SLICE], b_tile)
                    for t in T.Parallel(tokens):
                        if swap_ab:
                            inside = first + t < last and i < slices
                            scale[t] = T.if_then_else(inside, a_scale[first + t, i] * b_scale[weight, tile, i], 0.0)
                        else:
                            inside = first + t < last
                            scale[t] = T.if_then_else(inside, a_scale[first + t, i], 0.0) * b_scale[weight, tile, i]
                    if swap_ab:
                        T.gemm(
                            b_tile, a_tile, part, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
                        )
                    else:
                        T.gemm(
                            a_tile, b_tile, part, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
                        )
                    for x, y in T.Parallel(*shape):
                        total[x, y] += part[x, y] * scale[y if swap_ab else x]
                for x, y in T.Parallel(*shape):
                    t, w = (y, x) if swap_ab else (x, y)
                    if first + t < last and tile * TILE + w < n:
                        out[split, first + t, tile * TILE + w] = total[x, y]

    return kernel


@tile_kernel((4096, 4, "bfloat16"))
def add_splits(n: int, splits: int, out_dtype: str) -> Any:
    """out [rows, n] = the sum of parts fp32 [splits, rows, n], always in the same order."""
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(parts: T.Tensor((splits, rows, n), "float32"), out: T.Tensor((rows, n), out_dtype)):
        with T.Kernel(T.ceildiv(n, 512), rows, threads=128) as (column, row):
            total = T.alloc_fragment((512,), "float32")
            T.clear(total)
            for split in T.unroll(splits):
                for i in T.Parallel(512):
                    total[i] += parts[split, row, column * 512 + i]
            for i in T.Parallel(512):
                if column * 512 + i < n:
                    out[row, column * 512 + i] = total[i]

    return kernel


def token_tile(rows: int) -> int:
    """The swap-AB token tile for `rows` rows (of an expert)."""
    return 16 if rows <= 16 else 32 if rows <= 32 else 64


def split_count(tiles: int, slices: int) -> int:
    """The number of parts of K: about one part of a tile for every multiprocessor, and at least four slices per part."""
    splits = 1
    while splits < 8 and tiles * splits * 2 <= MULTIPROCESSORS and slices >= 8 * splits:
        splits *= 2
    return splits


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, beside_previous: bool
) -> torch.Tensor:
    values, weight = aligned_rows(a.values).contiguous(), aligned_rows(weight).contiguous()
    (rows, k), n = values.shape, weight.shape[0]
    dtype = str(out_dtype).removeprefix("torch.")
    out = torch.empty(rows, n, dtype=out_dtype, device=values.device)
    operands = values, a.scales.contiguous(), weight[None], weight_scale.contiguous()[None]
    tokens = 128 if rows > 128 else token_tile(rows)
    slots = -(-rows // tokens)
    no_plan = torch.empty(slots, 3, dtype=torch.int32, device=values.device)
    splits = 1 if rows > 128 else split_count(-(-n // TILE) * slots, a.scales.shape[1])
    if splits == 1:
        product(n, k, False, tokens, 1, dtype)(*operands, no_plan, out[None])
        return out
    parts = torch.empty(splits, rows, n, dtype=torch.float32, device=values.device)
    product(n, k, False, tokens, splits, "float32")(*operands, no_plan, parts)
    add_splits(n, splits, dtype)(parts, out)
    return out


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    return [fp8_gemm(a, *weight, out_dtype, False) for weight in weights]
