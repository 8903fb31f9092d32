"""Grouped GEMM of rows sorted by expert in TileLang. The expert of each tile is found on the device, from the offsets."""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import aligned_rows
from ..types import GroupedRows, Quantized
from .factory import tile_kernel
from .fp8_gemm import TILE, fp8_gemm, product, token_tile

TOKENS = 128  # the token tile of bf16 experts, and of many rows


@tile_kernel((32, 128, False), (32, 16, False), (256, 16, False), (256, 16, True))
def plan_tiles(experts: int, tokens: int, mapped: bool) -> Any:
    """offsets [experts + 1] -> plan [tiles, 3]: weight, first row, and end of the expert's rows for each tile of `tokens` rows.

    Expert e has the tiles from offsets[e] // tokens + e on. They are as many as it needs, or one more, so that no prefix sum is
    needed and rows // tokens + experts tiles are enough. A superfluous tile starts at or past the end of its expert. mapped: the
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
                    if offsets[middle] // tokens + middle <= tile:
                        low = middle
                    else:
                        high = middle
            if tile < tiles:
                plan[tile, 0] = slots[low] if mapped else low
                plan[tile, 1] = offsets[low] + (tile - offsets[low] // tokens - low) * tokens
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
    values, scales = routed.gathered()
    weight_scale, expected_m, experts, out = routed.weight_scale, routed.expected_m, routed.experts, routed.out
    values, weight = aligned_rows(values).contiguous(), aligned_rows(routed.weight).contiguous()
    (rows, k), n = values.shape, weight.shape[1]
    dtype = str(out.dtype).removeprefix("torch.")
    few = scales is not None and expected_m <= 32 * experts  # an average; an expert may have several tiles
    tokens = token_tile(2 * expected_m // experts) if few else TOKENS
    plan = torch.empty(rows // tokens + experts, 3, dtype=torch.int32, device=values.device)
    slots = routed.offsets if routed.slots is None else routed.slots
    plan_tiles(experts, tokens, routed.slots is not None)(routed.offsets, slots, plan)
    if scales is None or weight_scale is None:
        bf16_tokens_by_weights(n, k, dtype)(values, weight, plan, out)
        return
    operands = values, scales.contiguous(), weight, weight_scale.contiguous()
    product(n, k, True, tokens, 1, dtype)(*operands, plan, out[None])


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, out: torch.Tensor, beside_previous: bool
) -> None:
    out.copy_(fp8_gemm(dense, *dense_weight, out.dtype, False))
    grouped_gemm(routed)
