"""bf16 products in TileLang whose sums are one chain of MMAs: slices of 16 of K in ascending order, from zero.

On Hopper the bits of an accumulator depend only on those slices in their order, not on the tile or on which operand is the M of
the MMA. So `linear` gives a row the same bits whatever the number of rows, though few rows take a kernel of their own.
"""

from typing import Any

import tilelang
import tilelang.language as T
import torch

from ..alignment import aligned_rows
from .factory import tile_kernel
from .lanes import dtype_name

TILE = 128  # rows of a weight in a tile
K_STEP = 64  # of K at a time: a line of the 128-byte swizzle
FEW_TOKENS = 64  # up to this many, the weights are the M of an MMA (swap-AB), in tiles of 16 or 64 tokens
STAGE_BYTES = 200 * 1024


@tile_kernel(*((tokens, dtype) for tokens in (128, 16, 64) for dtype in ("float32", "bfloat16")))
def product(tokens: int, out_dtype: str) -> Any:
    """a [rows, k] times b [n, k] transposed -> out [rows, n], in tiles of `tokens` tokens; fewer than 128 by swap-AB."""
    rows, n, k = T.dynamic("rows"), T.dynamic("n"), T.dynamic("k")
    swap_ab = tokens < 128
    shape = (TILE, tokens) if swap_ab else (tokens, TILE)
    # With swap-AB, two CTAs share a multiprocessor.
    stages = STAGE_BYTES // 2 // ((TILE + tokens) * K_STEP * 2) if swap_ab else 5

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, k), "bfloat16"), b: T.Tensor((n, k), "bfloat16"), out: T.Tensor((rows, n), out_dtype)
    ):
        with T.Kernel(T.ceildiv(n, TILE), T.ceildiv(rows, tokens), threads=256) as (tile, block):
            a_tile = T.alloc_shared((tokens, K_STEP), "bfloat16")
            b_tile = T.alloc_shared((TILE, K_STEP), "bfloat16")
            total = T.alloc_fragment(shape, "float32")
            T.clear(total)
            for i in T.Pipelined(T.ceildiv(k, K_STEP), num_stages=stages):
                T.copy(a[block * tokens : (block + 1) * tokens, i * K_STEP : (i + 1) * K_STEP], a_tile)
                T.copy(b[tile * TILE : (tile + 1) * TILE, i * K_STEP : (i + 1) * K_STEP], b_tile)
                if swap_ab:
                    T.gemm(b_tile, a_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                else:
                    T.gemm(a_tile, b_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for x, y in T.Parallel(*shape):
                t, w = (y, x) if swap_ab else (x, y)
                if block * tokens + t < rows and tile * TILE + w < n:
                    out[block * tokens + t, tile * TILE + w] = total[x, y]

    return kernel


def linear(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    """x [T, K] times weight [N, K] transposed -> [T, N]."""
    x, weight = aligned_rows(x).contiguous(), aligned_rows(weight).contiguous()
    rows, n = x.shape[0], weight.shape[0]
    out = x.new_empty(rows, n, dtype=out_dtype)
    if out.numel():
        tokens = 128 if rows > FEW_TOKENS else 16 if rows <= 16 else 64
        product(tokens, dtype_name(out_dtype))(x, weight, out)
    return out


# Without warps of their own for copies, several CTAs share a multiprocessor, and one multiplies while another stores its results.
@tile_kernel(
    (128, 512, 128, 512, 256, 128),
    pass_configs={tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True},
)
def products_of_heads(heads: int, k: int, n: int, pitch: int, weight_pitch: int, out_pitch: int) -> Any:
    """For each head h: a [rows, heads * pitch] from column h * pitch on, times b transposed -> out [rows, heads * out_pitch].

    Head h's part of b [.., k] is the n rows from row h * weight_pitch on.
    """
    rows, lines = T.dynamic("rows"), T.dynamic("lines")

    @T.prim_func
    def kernel(
        a: T.Tensor((rows, heads * pitch), "bfloat16"),
        b: T.Tensor((lines, k), "bfloat16"),
        out: T.Tensor((rows, heads * out_pitch), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(n, TILE), heads, T.ceildiv(rows, 128), threads=256) as (tile, head, block):
            a_tile = T.alloc_shared((128, K_STEP), "bfloat16")
            b_tile = T.alloc_shared((TILE, K_STEP), "bfloat16")
            staged = T.alloc_shared((128, TILE), "bfloat16")
            total = T.alloc_fragment((128, TILE), "float32")
            T.clear(total)
            for i in T.Pipelined(k // K_STEP, num_stages=min(k // K_STEP, 4)):
                first = head * pitch + i * K_STEP
                T.copy(a[block * 128 : (block + 1) * 128, first : first + K_STEP], a_tile)
                line = head * weight_pitch
                T.copy(b[line + tile * TILE : line + (tile + 1) * TILE, i * K_STEP : (i + 1) * K_STEP], b_tile)
                T.gemm(a_tile, b_tile, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            if n % TILE == 0:  # by bulk stores, whose lines are whole
                column = head * out_pitch + tile * TILE
                T.copy(total, staged)
                T.copy(staged, out[block * 128 : (block + 1) * 128, column : column + TILE])
            else:
                for t, w in T.Parallel(128, TILE):
                    if block * 128 + t < rows and tile * TILE + w < n:
                        out[block * 128 + t, head * out_pitch + tile * TILE + w] = total[t, w]

    return kernel


def by_heads(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """x [T, H, K] times weight [H, N, K] transposed, each head's rows with its own weight, into out [T, H, N].

    K is a multiple of 64. x and out may be parts of wider heads, and a head of the weight may be a part of its rows.
    """
    (rows, heads, k), n = x.shape, weight.shape[1]
    head, pitch, out_pitch = weight.stride(0), x.stride(1), out.stride(1)
    shapes = k % K_STEP == 0 and weight.stride(1) == k and weight.stride(2) == 1 and head % k == 0
    if not shapes or x.stride(0) != heads * pitch or out.stride(0) != heads * out_pitch:
        raise ValueError(
            f"weight is {list(weight.shape)} with strides {list(weight.stride())}; expected a multiple of {K_STEP} columns, "
            "and heads of equal pitch"
        )
    lines = (heads - 1) * (head // k) + n
    kernel = products_of_heads(heads, k, n, pitch, head // k, out_pitch)
    kernel(
        x.as_strided((rows, heads * pitch), (heads * pitch, 1)),
        weight.as_strided((lines, k), (k, 1)),
        out.as_strided((rows, heads * out_pitch), (heads * out_pitch, 1)),
    )
