"""Block-scaled FP8 GEMM on Hopper, and the choice of kernel and tile by the number of rows.

Two kernels. `large_m` has 64 tokens as the M of an MMA. It never splits K, so that the bits of an element of the result depend
only on its row of a and its row of b, not on the tile or the number of rows. `swap_ab`, for few tokens, exchanges the operands, and
splits K by the number of tiles.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ..alignment import aligned_rows
from ..build import load
from ..device import multiprocessors
from ..types import Quantized
from .pdl import weights_are_static

MAX_SHARED_LAUNCH_ROWS = 64  # the products of several weights share a launch up to this many rows, one token tile


class Tile(NamedTuple):
    """The part of the result that a CTA of the kernel `large_m` computes at a time; two CTAs of a pair share an operand."""

    rows: int
    columns: int
    paired: bool = False


# Microseconds that a slice of 128 of K takes in a tile, and what a tile takes besides. Fitted to times on an H200: for tiles of
# 64 rows the times of 64 to 160 rows, for the others the times of 1024 to 4096 rows.
LARGE_TILES = {
    Tile(64, 32, False): (0.138, 1.0),
    Tile(64, 64, False): (0.2, 1.3),
    Tile(64, 112, False): (0.278, 1.0),
    Tile(128, 128, False): (0.427, 0.54),
    Tile(128, 144, False): (0.504, 1.14),
    Tile(128, 192, False): (0.616, 0.755),
    Tile(128, 256, False): (0.805, 1.32),
}
PAIRED_TILE = Tile(128, 256, True)  # faster than single CTAs where many tiles of a long K follow each other
WIDE_TILE = Tile(64, 288, True)  # for up to 64 rows of a weight that is wide enough to occupy the GPU with such tiles
EXPERT_TILE = Tile(192, 128, True)  # for experts: up to about 160 rows at once, and their pairs claim tiles


def swap_ab_tile(rows: int) -> int:
    """Return the token tile of the swap-AB kernel for `rows` rows."""
    return min(max(8, 1 << (rows - 1).bit_length()), 128)


def waves(tile: Tile, rows: int, columns: int, processors: int) -> int:
    """Return how many tiles the busiest multiprocessor computes, one after the other."""
    return -(-(-(-rows // tile.rows) * -(-columns // tile.columns)) // processors)


def large_tile(rows: int, columns: int, width: int, processors: int) -> Tile:
    """Return the tile of `large_m` with the shortest time by the model: waves times a tile's time."""

    def microseconds(tile: Tile) -> float:
        slice_time, rest = LARGE_TILES[tile]
        return waves(tile, rows, columns, processors) * (-(-width // 128) * slice_time + rest)

    tile = min((tile for tile in LARGE_TILES if rows > 64 or tile.rows == 64), key=microseconds)
    pairs_gain = tile[:2] == PAIRED_TILE[:2] and width >= 4096 and waves(tile, rows, columns, processors) >= 3
    return PAIRED_TILE if pairs_gain else tile


@lru_cache(1024)
def choose(rows: int, columns: int, width: int, processors: int) -> Tile | int:
    """Return the tile of `large_m`, or the token tile of `swap_ab`, for a [rows, width] times a weight [columns, width].

    The swap-AB kernel, which also splits K, serves products whose tiles would leave half of the multiprocessors idle, 64 rows that
    would leave a third idle, and fewer rows: `large_m` spends more than their share on a tile's rows outside the matrix. Up to 64
    rows of a weight that fills the GPU with WIDE_TILE take that.
    """
    if rows <= 64 and 8 * -(-columns // WIDE_TILE.columns) > 7 * processors:
        return WIDE_TILE
    if rows < 64:
        return swap_ab_tile(rows)
    tile = large_tile(rows, columns, width, processors)
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns)
    if 3 * tiles > 2 * processors or (rows > 64 and 2 * tiles > processors):
        return tile
    return 64 if rows <= 128 else 128


def multiply_into(
    out: torch.Tensor,
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    offsets: torch.Tensor | None,
    tile: Tile | int,
    splits: int = 0,
    sorted_token_ids: torch.Tensor | None = None,
    expected_tiles: int = 0,
    beside_previous: bool = False,
    slots: torch.Tensor | None = None,
) -> None:
    """Multiply a [M, K] by b [E, N, K] into out [M, N], by `large_m` for a Tile, by `swap_ab` for a number of tokens.

    slots int32 [E]: the weight of expert e is b[slots[e]]; -1: its rows are not computed. The other arguments are swap_ab's.
    K is split into `splits` parts, each added in ascending order; 0: as many as fill the GPU. `sorted_token_ids` int32 [M], with
    tiles of up to 32 tokens: row r of out is computed from row sorted_token_ids[r] of a. `expected_tiles`: about how many of the
    possible token tiles are not empty; 0: all. `beside_previous`: see kernels/fp8_gemm.py; large_m does not use it.
    """
    rows, weights = aligned_rows(a), aligned_rows(b)
    library = load("fp8_gemm")
    if isinstance(tile, Tile):
        claims = tile == EXPERT_TILE and offsets is not None
        claimed = out.new_empty(1, dtype=torch.int32) if claims else None
        library.large_m(*tile, rows, a_scale, weights, b_scale, offsets, slots, out, claimed)
    else:
        beside_previous = beside_previous and rows is a  # a copy is made right before the product
        operands = rows, a_scale, weights, b_scale, offsets, slots, sorted_token_ids, out
        library.swap_ab(tile, splits, weights_are_static(b), *operands, expected_tiles, beside_previous)


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, beside_previous: bool
) -> torch.Tensor:
    (rows, width), columns = a.values.shape, weight.shape[0]
    tile = choose(rows, columns, width, multiprocessors(weight.device))
    out = weight.new_empty(rows, columns, dtype=out_dtype)
    multiply_into(out, *a, weight[None], weight_scale[None], None, tile, beside_previous=beside_previous)
    return out


def fp8_gemms(
    a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype, splits: int = 0
) -> list[torch.Tensor]:
    """Two or three weights and few rows share one launch. splits: as in `multiply_into`, for that launch."""
    rows = a.values.shape[0]
    if rows > MAX_SHARED_LAUNCH_ROWS or len(weights) not in (2, 3):
        return [fp8_gemm(a, *weight, out_dtype, False) for weight in weights]
    static_weights = weights_are_static(*(weight.values for weight in weights))
    values = aligned_rows(a.values)
    outs = [values.new_empty(rows, len(weight.values), dtype=out_dtype) for weight in weights]
    operands: list[torch.Tensor] = []
    for weight, out in zip(weights, outs, strict=True):
        operands += (aligned_rows(weight.values)[None], weight.scales[None], out)
    library = load("fp8_gemm")
    launch = library.swap_ab_2 if len(weights) == 2 else library.swap_ab_3
    launch(swap_ab_tile(rows), splits, static_weights, values, a.scales, *operands)
    return outs
