"""Grouped GEMM of bf16 rows sorted by expert in TileLang. The expert of each tile is found on the device, from the offsets."""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import aligned_rows
from ..types import GroupedRows
from .factory import tile_kernel
from .lanes import dtype_name

TOKENS, TILE = 128, 128  # rows, and rows of the weight, of a tile


@tile_kernel((32, False), (256, False), (256, True))
def plan_tiles(experts: int, mapped: bool) -> Any:
    """offsets [experts + 1] -> plan [tiles, 3]: weight, first row, and end of the expert's rows for each tile of TOKENS rows.

    Expert e has the tiles from offsets[e] // TOKENS + e on. They are as many as it needs, or one more, so that no prefix sum is
    needed and rows // TOKENS + experts tiles are enough. A superfluous tile starts at or past the end of its expert. mapped: the
    weight of expert e is slots[e], and if that is -1, its tiles are superfluous; otherwise the weight is e, and slots is not read.
    """
    tiles, entries = T.dynamic("tiles"), T.dynamic("entries")

    @T.prim_func
    def kernel(
        offsets: T.Tensor((experts + 1,), "int32"),
        slots: T.Tensor((entries,), "int32"),
        plan: T.Tensor((tiles, 3), "int32"),
    ):
        with T.Kernel(T.ceildiv(tiles, 128), threads=128) as block:
            tile = block * 128 + T.get_thread_binding()
            low, high, middle = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            low = 0
            high = experts
            for _ in T.serial(experts.bit_length()):
                if high - low > 1:
                    middle = (low + high) // 2
                    if offsets[middle] // TOKENS + middle <= tile:
                        low = middle
                    else:
                        high = middle
            if tile < tiles:
                plan[tile, 0] = slots[low] if mapped else low
                plan[tile, 1] = offsets[low] + (tile - offsets[low] // TOKENS - low) * TOKENS
                plan[tile, 2] = T.if_then_else(slots[low] < 0, 0, offsets[low + 1]) if mapped else offsets[low + 1]

    return kernel


@tile_kernel((4096, 7168, "bfloat16"), (130, 200, "float32"))
def bf16_tokens_by_weights(n: int, k: int, out_dtype: str) -> Any:
    """a bf16 [rows, k] times b[weight] bf16 [n, k] transposed -> out [rows, n], accumulated in fp32."""
    rows, slots, weights = T.dynamic("rows"), T.dynamic("slots"), T.dynamic("weights")

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, k), "bfloat16"),
        b: T.Tensor((weights, n, k), "bfloat16"),
        plan: T.Tensor((slots, 3), "int32"),
        out: T.Tensor((rows, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, TILE), slots, threads=256) as (tile, slot):
            a_tile = T.alloc_shared((TOKENS, 64), "bfloat16")
            b_tile = T.alloc_shared((TILE, 64), "bfloat16")
            total = T.alloc_fragment((TOKENS, TILE), "float32")
            weight = plan[slot, 0]
            first = plan[slot, 1]
            last = plan[slot, 2]
            if first < last:
                T.clear(total)
                for i in T.Pipelined(T.ceildiv(k, 64), num_stages=5):
                    T.copy(a[first : first + TOKENS, i * 64 : (i + 1) * 64], a_tile)
                    T.copy(b[weight, tile * TILE : (tile + 1) * TILE, i * 64 : (i + 1) * 64], b_tile)
                    T.gemm(a_tile, b_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for t, w in T.Parallel(TOKENS, TILE):
                    if first + t < last and tile * TILE + w < n:
                        out[first + t, tile * TILE + w] = total[t, w]

    return kernel


def grouped_gemm(routed: GroupedRows) -> None:
    values, _ = routed.gathered()
    values, weight = aligned_rows(values).contiguous(), aligned_rows(routed.weight).contiguous()
    (rows, k), n, experts = values.shape, weight.shape[1], routed.experts
    plan = values.new_empty(rows // TOKENS + experts, 3, dtype=torch.int32)
    slots = routed.offsets if routed.slots is None else routed.slots
    plan_tiles(experts, routed.slots is not None)(routed.offsets, slots, plan)
    bf16_tokens_by_weights(n, k, dtype_name(routed.out.dtype))(values, weight, plan, routed.out)
