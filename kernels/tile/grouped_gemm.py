"""Products of rows sorted by expert in TileLang. Which tile belongs to which expert is found on the device, from the offsets."""

from typing import Any

import tilelang.language as T
import torch

from ..padding import aligned_rows
from .factory import tile_kernel
from .fp8_gemm import TILE, fp8_gemm, token_tile, tokens_by_weights, weights_by_tokens

TOKENS = 128  # in a tile of bf16_tokens_by_weights


@tile_kernel((32, 128), (32, 16), (256, 16))
def plan_tiles(experts: int, tokens: int) -> Any:
    """offsets [experts + 1] -> plan [slots, 3]: expert, first row and end of its rows for each tile of `tokens` rows.

    Expert e has the slots from offsets[e] // tokens + e on, which are as many as it has tiles or one more: without a prefix sum,
    and rows // tokens + experts slots suffice. A slot too many starts at or past its expert's end.
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
    """a bf16 [rows, k] times b[expert] bf16 [n, k] transposed -> out [rows, n], summed in fp32."""
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


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
) -> torch.Tensor:
    if sorted_token_ids is not None:
        a, a_scale = a[sorted_token_ids], None if a_scale is None else a_scale[sorted_token_ids]
    a, b = aligned_rows(a).contiguous(), aligned_rows(b).contiguous()
    (rows, k), (experts, n) = a.shape, b.shape[:2]
    dtype = str(out_dtype).removeprefix("torch.")
    out = torch.empty(rows, n, dtype=out_dtype, device=a.device)
    few = a_scale is not None and expected_m <= 32 * experts  # on average; an expert may have more tiles than one
    tokens = token_tile(2 * expected_m // experts) if few else TOKENS
    plan = torch.empty(rows // tokens + experts, 3, dtype=torch.int32, device=a.device)
    plan_tiles(experts, tokens)(offsets, plan)
    if a_scale is None or b_scale is None:
        bf16_tokens_by_weights(n, k, experts, dtype)(a, b, plan, out)
    elif few:
        operands = a, a_scale.contiguous(), b, b_scale.contiguous()
        weights_by_tokens(n, k, experts, tokens, 1, dtype)(*operands, plan, out[None])
    else:
        tokens_by_weights(n, k, experts, dtype)(a, a_scale.contiguous(), b, b_scale.contiguous(), plan, out)
    return out


def grouped_gemm_with_shared(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    offsets: torch.Tensor,
    dense: tuple[torch.Tensor, torch.Tensor],
    dense_weight: tuple[torch.Tensor, torch.Tensor],
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
) -> torch.Tensor:
    shared = fp8_gemm(*dense, *dense_weight, out_dtype)
    return torch.cat((shared, grouped_gemm(a, b, offsets, a_scale, b_scale, out_dtype, sorted_token_ids, expected_m)))
