"""FP8 products on a Hopper GPU, batch-invariant: the weight's shape decides how K is split, and slices are added in order.

Both kernels of ../../cuda/fp8_gemm then give an element the same bits: each slice of 128 is a chain of MMAs from zero, multiplied
by the product of both scales and added in one fused operation. So which of them runs, and in what tiles, may depend on the rows.
"""

from collections.abc import Sequence

import torch

from ...alignment import aligned_rows
from ...build import load
from ...cuda.fp8_gemm import MAX_SHARED_LAUNCH_ROWS, Tile, in_one_launch, multiply_into, multiprocessors, swap_ab_tile
from ...cuda.fp8_gemm import choose as choose_dense
from ...cuda.grouped_gemm import MAX_GATHER_TILE, gathered
from ...cuda.grouped_gemm import MAX_SHARED_LAUNCH_ROWS as MAX_FUSED_ROWS
from ...cuda.grouped_gemm import choose as choose_grouped
from ...cuda.pdl import weights_are_static
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


def _dense(
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype,
    splits: int,
    beside_previous: bool = False,
) -> torch.Tensor:
    out = torch.empty(a.values.shape[0], weight.shape[0], dtype=out_dtype, device=weight.device)
    _dense_into(out, a, weight, weight_scale, splits, beside_previous)
    return out


def fp8_gemm(
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype,
    beside_previous: bool = False,
) -> torch.Tensor:
    return _dense(a, weight, weight_scale, out_dtype, splits_of(*weight.shape), beside_previous)


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    rows, splits = a.values.shape[0], {splits_of(*weight.values.shape) for weight in weights}
    if rows > MAX_SHARED_LAUNCH_ROWS or len(weights) not in (2, 3) or len(splits) > 1:
        return [fp8_gemm(a, *weight, out_dtype) for weight in weights]
    return in_one_launch(a, weights, out_dtype, splits.pop())


def grouped_gemm(routed: GroupedRows) -> torch.Tensor:
    """Multiply without splitting K. In bf16 the TileLang kernel has one tile and one chain of MMAs for any number of rows."""
    if not isinstance(routed.a, Quantized):
        return bf16_grouped_gemm(routed)
    weight = routed.weight
    out = torch.empty(routed.rows, weight.shape[1], dtype=routed.out_dtype, device=weight.device)
    _grouped_into(out, routed)
    return out


def _grouped_into(out: torch.Tensor, routed: GroupedRows) -> None:
    _, weight, offsets, _, _, _, expected_m = routed
    tile = choose_grouped(expected_m, weight.shape[0])
    a, weight_scale, sorted_token_ids = gathered(routed, tile)
    multiply_into(out, *a, weight, weight_scale, offsets, tile, 1, sorted_token_ids, expected_m)


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, beside_previous: bool = False
) -> torch.Tensor:
    """Multiply without splitting the shared expert's K, so that few tokens need one launch for both products."""
    _, weight, offsets, _, out_dtype, _, expected_m = routed
    tokens = dense.values.shape[0]
    out = torch.empty(tokens + routed.rows, weight.shape[1], dtype=out_dtype, device=weight.device)
    tile = choose_grouped(expected_m, weight.shape[0])
    if tokens > MAX_FUSED_ROWS or not isinstance(tile, int) or tile > MAX_GATHER_TILE:
        _dense_into(out[:tokens], dense, *dense_weight, 1)
        _grouped_into(out[tokens:], routed)
        return out
    a, weight_scale, sorted_token_ids = gathered(routed, tile)
    beside_previous = beside_previous and aligned_rows(dense.values) is dense.values
    operands = (a.values, weight, dense.values, dense_weight.values)
    values, experts, dense_values, own = (aligned_rows(x).view(torch.uint8) for x in operands)
    product = dense_values, dense.scales, own[None], dense_weight.scales[None], out[:tokens]
    grouped = values, a.scales, experts, weight_scale, offsets, sorted_token_ids, out[tokens:], expected_m
    load("fp8_gemm").swap_ab_with_shared(
        tile, 1, weights_are_static(dense_weight.values), *product, *grouped, beside_previous
    )
    return out
