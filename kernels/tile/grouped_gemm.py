"""Grouped GEMM of rows sorted by expert in TileLang. The expert of each tile is found on the device, from the offsets."""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import aligned_rows
from ..types import GroupedRows, Quantized
from .factory import tile_kernel
from .fp8_gemm import TILE, fp8_gemm, token_tile, tokens_by_weights, weights_by_tokens

TOKENS = 128  # the token tile of bf16_tokens_by_weights


@tile_kernel((32, 128), (32, 16), (256, 16))
def plan_tiles(experts: int, tokens: int) -> Any:
    """offsets [experts + 1] -> plan [slots, 3]: expert, first row, and end of the expert's rows for each tile of `tokens` rows.

    Expert e has the slots from offsets[e] // tokens + e on. They are as many as it has tiles, or one more, so that no prefix sum is
    needed and rows // tokens + experts slots are enough. A superfluous slot starts at or past the end of its expert.
    """
    slots = T.dynamic("slots")

    @T.prim_func
    def kernel(offsets: T.Tensor((experts + 1,), "int32"), plan: T.Tensor((slots, 3), "int32")):
        with T.Kernel(T.ceildiv(slots, 128), threads=128) as block:
            slot = block * 128 + T.get_thread_binding()
            low, high, middle = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            low = 0
            high = experts
            for _ in T.serial(experts.bit_length()):
                if high - low > 1:
                    middle = (low + high) // 2
                    if offsets[middle] // tokens + middle <= slot:
                        low = middle
                    else:
                        high = middle
            if slot < slots:
                plan[slot, 0] = low
                plan[slot, 1] = offsets[low] + (slot - offsets[low] // tokens - low) * tokens
                plan[slot, 2] = offsets[low + 1]

    return kernel


@tile_kernel((4096, 7168, 32, "bfloat16"), (130, 200, 3, "float32"))
def bf16_tokens_by_weights(n: int, k: int, experts: int, out_dtype: str) -> Any:
    """a bf16 [rows, k] times b[expert] bf16 [n, k] transposed -> out [rows, n], accumulated in fp32."""
    rows, slots = T.dynamic("rows"), T.dynamic("slots")

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, k), "bfloat16"),
        b: T.Tensor((experts, n, k), "bfloat16"),
        plan: T.Tensor((slots, 3), "int32"),
        out: T.Tensor((rows, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, TILE), slots, threads=256) as (tile, slot):
            a_tile = T.alloc_shared((TOKENS, 64), "bfloat16")
            b_tile = T.alloc_shared((TILE, 64), "bfloat16")
            total = T.alloc_fragment((TOKENS, TILE), "float32")
            expert = plan[slot, 0]
            first = plan[slot, 1]
            last = plan[slot, 2]
            if first < last:
                T.clear(total)
                for i in T.Pipelined(T.ceildiv(k, 64), num_stages=5):
                    T.copy(a[first : first + TOKENS, i * 64 : (i + 1) * 64], a_tile)
                    T.copy(b[expert, tile * TILE : (tile + 1) * TILE, i * 64 : (i + 1) * 64], b_tile)
                    T.gemm(a_tile, b_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for t, w in T.Parallel(TOKENS, TILE):
                    if first + t < last and tile * TILE + w < n:
                        out[first + t, tile * TILE + w] = total[t, w]

    return kernel


def grouped_gemm(routed: GroupedRows) -> torch.Tensor:
    values, scales = routed.gathered()
    _, weight, offsets, weight_scale, out_dtype, _, expected_m = routed
    values, weight = aligned_rows(values).contiguous(), aligned_rows(weight).contiguous()
    (rows, k), (experts, n) = values.shape, weight.shape[:2]
    dtype = str(out_dtype).removeprefix("torch.")
    out = torch.empty(rows, n, dtype=out_dtype, device=values.device)
    swap_ab = scales is not None and expected_m <= 32 * experts  # an average; an expert may have several tiles
    tokens = token_tile(2 * expected_m // experts) if swap_ab else TOKENS
    plan = torch.empty(rows // tokens + experts, 3, dtype=torch.int32, device=values.device)
    plan_tiles(experts, tokens)(offsets, plan)
    if scales is None or weight_scale is None:
        bf16_tokens_by_weights(n, k, experts, dtype)(values, weight, plan, out)
        return out
    operands = values, scales.contiguous(), weight, weight_scale.contiguous()
    if swap_ab:
        weights_by_tokens(n, k, experts, tokens, 1, dtype)(*operands, plan, out[None])
    else:
        tokens_by_weights(n, k, experts, dtype)(*operands, plan, out)
    return out


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, beside_previous: bool = False
) -> torch.Tensor:
    return torch.cat((fp8_gemm(dense, *dense_weight, routed.out_dtype), grouped_gemm(routed)))
