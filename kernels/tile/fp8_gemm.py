"""Block-scaled FP8 GEMM in TileLang: fp32 sums over slices of 128 of K; each slice is scaled before it is added.

Two kernels. `tokens_by_weights` is for large M: 128 tokens are the M of an MMA. `weights_by_tokens` is swap-AB, for small M: the
tokens are the N of an MMA, so that few of them do not waste its M. It may split K (split-K); `add_splits` adds the partial sums in
order. Both also compute grouped GEMMs, for which a plan lists the tiles (grouped_gemm.py). Without experts the plan is not read.
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


@tile_kernel((4096, 7168, False, "bfloat16"), (4096, 7168, True, "bfloat16"), (130, 200, True, "float32"))
def tokens_by_weights(n: int, k: int, grouped: bool, out_dtype: str) -> Any:
    """a [rows, k] times b[weight] [n, k] transposed -> out [rows, n], in tiles of 128 tokens. The plan is read if `grouped`."""
    slices = -(-k // SLICE)
    rows, slots, weights = T.dynamic("rows"), T.dynamic("slots"), T.dynamic("weights")

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, k), FP8),
        a_scale: T.Tensor((rows, slices), "float32"),
        b: T.Tensor((weights, n, k), FP8),
        b_scale: T.Tensor((weights, -(-n // TILE), slices), "float32"),
        plan: T.Tensor((slots, 3), "int32"),
        out: T.Tensor((rows, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, TILE), slots, threads=256) as (tile, slot):
            a_tile = T.alloc_shared((128, SLICE), FP8)
            b_tile = T.alloc_shared((TILE, SLICE), FP8)
            scale = T.alloc_fragment((128,), "float32")
            part = T.alloc_fragment((128, TILE), "float32")
            total = T.alloc_fragment((128, TILE), "float32")
            weight = plan[slot, 0] if grouped else 0
            first = plan[slot, 1] if grouped else slot * 128
            last = plan[slot, 2] if grouped else rows
            if first < last:
                T.clear(total)
                for i in T.Pipelined(slices, num_stages=6):
                    T.copy(a[first : first + 128, i * SLICE : (i + 1) * SLICE], a_tile)
                    T.copy(b[weight, tile * TILE : (tile + 1) * TILE, i * SLICE : (i + 1) * SLICE], b_tile)
                    for t in T.Parallel(128):
                        scale[t] = (
                            T.if_then_else(first + t < last, a_scale[first + t, i], 0.0) * b_scale[weight, tile, i]
                        )
                    T.gemm(a_tile, b_tile, part, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for t, w in T.Parallel(128, TILE):
                        total[t, w] += part[t, w] * scale[t]
                for t, w in T.Parallel(128, TILE):
                    if first + t < last and tile * TILE + w < n:
                        out[first + t, tile * TILE + w] = total[t, w]

    return kernel


@tile_kernel(
    (4096, 7168, False, 16, 4, "float32"),
    (4096, 7168, True, 16, 1, "bfloat16"),
    (4096, 7168, False, 64, 4, "float32"),
)
def weights_by_tokens(n: int, k: int, grouped: bool, tokens: int, splits: int, out_dtype: str) -> Any:
    """The product with swap-AB, in tiles of `tokens` tokens -> out [splits, rows, n], one sum for each part of K."""
    slices = -(-k // SLICE)
    part_slices = -(-slices // splits)
    # One thread block has a multiprocessor to itself.
    stages = min(part_slices, STAGE_BYTES // ((TILE + tokens) * SLICE))
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
            part = T.alloc_fragment((TILE, tokens), "float32")
            total = T.alloc_fragment((TILE, tokens), "float32")
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
                        inside = first + t < last and i < slices
                        scale[t] = T.if_then_else(inside, a_scale[first + t, i] * b_scale[weight, tile, i], 0.0)
                    T.gemm(b_tile, a_tile, part, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for w, t in T.Parallel(TILE, tokens):
                        total[w, t] += part[w, t] * scale[t]
                for w, t in T.Parallel(TILE, tokens):
                    if first + t < last and tile * TILE + w < n:
                        out[split, first + t, tile * TILE + w] = total[w, t]

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
    """The token tile of `weights_by_tokens` for `rows` rows (of an expert)."""
    return 16 if rows <= 16 else 32 if rows <= 32 else 64


def split_count(tiles: int, slices: int) -> int:
    """The number of parts of K: about one part of a tile for every multiprocessor, and at least four slices per part."""
    splits = 1
    while splits < 8 and tiles * splits * 2 <= MULTIPROCESSORS and slices >= 8 * splits:
        splits *= 2
    return splits


def fp8_gemm(
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype,
    beside_previous: bool = False,
) -> torch.Tensor:
    values, weight = aligned_rows(a.values).contiguous(), aligned_rows(weight).contiguous()
    (rows, k), n = values.shape, weight.shape[0]
    dtype = str(out_dtype).removeprefix("torch.")
    out = torch.empty(rows, n, dtype=out_dtype, device=values.device)
    operands = values, a.scales.contiguous(), weight[None], weight_scale.contiguous()[None]
    tokens = 128 if rows > 128 else token_tile(rows)
    slots = -(-rows // tokens)
    no_plan = torch.empty(slots, 3, dtype=torch.int32, device=values.device)
    if rows > 128:
        tokens_by_weights(n, k, False, dtype)(*operands, no_plan, out)
        return out
    splits = split_count(-(-n // TILE) * slots, a.scales.shape[1])
    if splits == 1:
        weights_by_tokens(n, k, False, tokens, 1, dtype)(*operands, no_plan, out[None])
        return out
    parts = torch.empty(splits, rows, n, dtype=torch.float32, device=values.device)
    weights_by_tokens(n, k, False, tokens, splits, "float32")(*operands, no_plan, parts)
    add_splits(n, splits, dtype)(parts, out)
    return out


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    return [fp8_gemm(a, *weight, out_dtype) for weight in weights]
