"""FP8 GEMM of rows sorted by expert on Hopper: the kernels of fp8_gemm.py, which find the expert of each tile from the offsets."""

import torch

from ..alignment import aligned_rows, is_aligned
from ..build import load
from ..device import multiprocessors
from ..types import GroupedRows, Quantized
from .fp8_gemm import EXPERT_TILE, PAIRED_TILE, Tile, multiply_into
from .fp8_gemm import choose as choose_dense
from .pdl import weights_are_static
from .routing import gather_rows

MAX_GATHER_TILE = 32  # the largest token tile whose rows the kernel gathers itself, with one copy for each row
# Up to this many tokens, two token tiles, the shared expert's product is in the launch of the routed experts' products.
MAX_SHARED_LAUNCH_ROWS = 16
MAX_EXPERT_AVERAGE = 512  # rows of an expert on average; with more, PAIRED_TILE is as fast


def choose(rows: int, experts: int) -> Tile | int:
    """Return the token tile of `swap_ab` or the tile of `large_m` for `rows` rows of all experts.

    Token tiles are twice the average of an expert, because loads differ.
    """
    average = -(-rows // experts)
    if average > 32:
        return EXPERT_TILE if average <= MAX_EXPERT_AVERAGE else PAIRED_TILE
    return max(8, 1 << (2 * average - 1).bit_length())


def gathered(routed: GroupedRows, tile: Tile | int) -> tuple[Quantized, torch.Tensor, torch.Tensor | None]:
    """Return (a, weight_scale, sorted_token_ids) for a kernel of this tile; gather the rows first if it cannot do it."""
    a, offsets, weight_scale, sorted_token_ids = routed.a, routed.offsets, routed.weight_scale, routed.sorted_token_ids
    assert isinstance(a, Quantized) and weight_scale is not None, "implementations.py names FP8 as the only dtype"
    if sorted_token_ids is None or (isinstance(tile, int) and tile <= MAX_GATHER_TILE):
        return a, weight_scale, sorted_token_ids
    return gather_rows(a, sorted_token_ids, offsets), weight_scale, None


def grouped_gemm(routed: GroupedRows, splits: int = 0) -> None:
    """splits: as in `multiply_into`."""
    tile = choose(routed.expected_m, routed.experts)
    a, weight_scale, sorted_token_ids = gathered(routed, tile)
    experts = routed.weight, weight_scale, routed.offsets
    # With few tokens nearly every row is in a tile of its own, so expected_m is also the expected number of tiles.
    multiply_into(routed.out, *a, *experts, tile, splits, sorted_token_ids, routed.expected_m, slots=routed.slots)


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, out: torch.Tensor, beside_previous: bool
) -> None:
    """Launch both products at once where few tokens leave the dense one too small to fill the GPU; otherwise one by one."""
    tokens = dense.values.shape[0]
    tile = choose(routed.expected_m, routed.experts)
    if tokens <= MAX_SHARED_LAUNCH_ROWS and isinstance(tile, int):
        in_one_launch(routed, dense, dense_weight, out, beside_previous, tile, 0)
        return
    columns, width = dense_weight.values.shape
    shared_tile = choose_dense(tokens, columns, width, multiprocessors(out.device))
    multiply_into(out, *dense, dense_weight.values[None], dense_weight.scales[None], None, shared_tile)
    grouped_gemm(routed)


def in_one_launch(
    routed: GroupedRows,
    dense: Quantized,
    dense_weight: Quantized,
    out: torch.Tensor,
    beside_previous: bool,
    tile: int,
    splits: int,
) -> None:
    """Multiply the shared expert's rows into `out` and the routed experts'; `splits` as in `multiply_into`."""
    a, weight_scale, sorted_token_ids = gathered(routed, tile)
    static_weights = weights_are_static(dense_weight.values)
    beside_previous = beside_previous and is_aligned(dense.values)
    operands = (a.values, routed.weight, dense.values, dense_weight.values)
    values, experts, dense_values, shared = map(aligned_rows, operands)
    product = dense_values, dense.scales, shared[None], dense_weight.scales[None], out
    grouped = values, a.scales, experts, weight_scale, routed.offsets, routed.slots, sorted_token_ids, routed.out
    load("fp8_gemm").swap_ab_with_shared(
        tile, splits, static_weights, *product, *grouped, routed.expected_m, beside_previous
    )
