"""FP8 products on a Hopper GPU, batch-invariant: the weight's shape decides how K is split, and slices are added in order.

Both kernels of ../../cuda/fp8_gemm then give an element the same bits: each slice of 128 is a chain of MMAs from zero, multiplied
by the product of both scales and added in one fused operation. So which of them runs, and in what tiles, may depend on the rows.
"""

from collections.abc import Sequence

import torch

from ...cuda import fp8_gemm as kernels
from ...cuda.fp8_gemm import MAX_SHARED_LAUNCH_ROWS, Tile, multiply_into, swap_ab_tile
from ...cuda.fp8_gemm import choose as choose_dense
from ...cuda.grouped_gemm import MAX_GATHER_TILE
from ...cuda.grouped_gemm import MAX_SHARED_LAUNCH_ROWS as MAX_FUSED_ROWS
from ...cuda.grouped_gemm import choose as choose_grouped
from ...cuda.grouped_gemm import grouped_gemm as fp8_grouped_gemm
from ...cuda.grouped_gemm import in_one_launch as grouped_in_one_launch
from ...device import multiprocessors
from ...tile.grouped_gemm import grouped_gemm as bf16_grouped_gemm
from ...tile.sum_parts import sum_parts
from ...types import GroupedRows, Quantized

SLICE, WEIGHTS = 128, 128  # of K, and rows of a weight in a tile of the swap-AB kernel
PARTS_TILE = Tile(128, 128)
# From this many tiles on, the kernel for many rows computes each part of K, and another kernel adds the parts. On an H200, in one
# launch and in two: for a weight [7168, 16384] in 4 parts 98 and 103 us with 256 rows, 206 and 181 with 512, 1704 and 1272
# with 4096; for a weight [1536, 7168] 57 and 70 with 1024, 191 and 187 with 4096.
PARTS_TILES = 200
PARTS_BYTES = 256 << 20  # of such products that are held at a time
MOST_SPLITS, LEAST_SLICES, CTAS = 8, 8, 264  # parts of K; slices of a part; two CTAs on each of 132 multiprocessors


def splits_of(columns: int, width: int) -> int:
    """Return into how many parts K is split for a weight [columns, width], so that the few tiles of a decode step fill the GPU."""
    tiles, slices, splits = -(-columns // WEIGHTS), -(-width // SLICE), 1
    while 2 * splits <= MOST_SPLITS and 2 * splits * tiles <= CTAS and 2 * splits * LEAST_SLICES <= slices:
        splits *= 2
    return splits


def _dense_into(
    out: torch.Tensor,
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    splits: int,
    beside_previous: bool = False,
) -> None:
    (rows, width), columns = a.values.shape, weight.shape[0]
    if splits == 1:
        tile = choose_dense(rows, columns, width, multiprocessors(weight.device))
        multiply_into(out, *a, weight[None], weight_scale[None], None, tile, 1, beside_previous=beside_previous)
    elif -(-rows // PARTS_TILE.rows) * -(-columns // PARTS_TILE.columns) < PARTS_TILES:
        # Of both kernels only swap-AB splits K.
        tile = swap_ab_tile(rows)
        multiply_into(out, *a, weight[None], weight_scale[None], None, tile, splits, beside_previous=beside_previous)
    else:
        step = max(PARTS_BYTES // (4 * splits * columns) // WEIGHTS, 1) * WEIGHTS
        for first in range(0, rows, step):
            part = slice(first, first + step)
            _sum_of_products(out[part], Quantized(a.values[part], a.scales[part]), weight, weight_scale, splits)


def _sum_of_products(
    out: torch.Tensor, a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, splits: int
) -> None:
    """Compute the parts that swap-AB adds by the kernel for many rows, and add them in the same order."""
    slices = -(-weight.shape[1] // SLICE)
    parts = torch.empty(splits, *out.shape, dtype=torch.float32, device=out.device)
    for rank, part in enumerate(parts):
        begin, end = slices * rank // splits, slices * (rank + 1) // splits
        k = slice(begin * SLICE, end * SLICE)
        own = a.values[:, k], a.scales[:, begin:end], weight[None, :, k], weight_scale[None, :, begin:end]
        multiply_into(part, *own, None, PARTS_TILE)
    sum_parts(parts, out)


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, beside_previous: bool
) -> torch.Tensor:
    out = torch.empty(a.values.shape[0], weight.shape[0], dtype=out_dtype, device=weight.device)
    _dense_into(out, a, weight, weight_scale, splits_of(*weight.shape), beside_previous)
    return out


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    rows, splits = a.values.shape[0], {splits_of(*weight.values.shape) for weight in weights}
    if rows > MAX_SHARED_LAUNCH_ROWS or len(weights) not in (2, 3) or len(splits) > 1:
        return [fp8_gemm(a, *weight, out_dtype, False) for weight in weights]
    return kernels.fp8_gemms(a, weights, out_dtype, splits.pop())


def grouped_gemm(routed: GroupedRows) -> None:
    """Multiply without splitting K. In bf16 the TileLang kernel has one tile and one chain of MMAs for any number of rows."""
    if isinstance(routed.a, Quantized):
        fp8_grouped_gemm(routed, 1)
    else:
        bf16_grouped_gemm(routed)


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, out: torch.Tensor, beside_previous: bool
) -> None:
    """Multiply without splitting the shared expert's K, so that few tokens need one launch for both products."""
    tile = choose_grouped(routed.expected_m, routed.experts)
    if len(out) <= MAX_FUSED_ROWS and isinstance(tile, int) and tile <= MAX_GATHER_TILE:
        grouped_in_one_launch(routed, dense, dense_weight, out, beside_previous, tile, 1)
    else:
        _dense_into(out, dense, *dense_weight, 1)
        fp8_grouped_gemm(routed, 1)
