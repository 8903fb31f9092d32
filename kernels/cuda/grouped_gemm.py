"""FP8 products of rows sorted by expert on Hopper: the kernels of fp8_gemm.py, which find each tile's expert from the offsets."""

import torch

from ..build import load
from ..padding import aligned_rows
from .fp8_gemm import MANY, multiply, multiply_into, weights_are_static
from .fp8_gemm import token_tile as dense_tile

GATHERED = 32  # the largest tile whose rows the kernel gathers by itself, a copy each
TOGETHER = 16  # tokens up to which the shared expert's product goes with those of the routed ones: two tiles


def token_tile(rows: int, experts: int) -> int:
    """The tile for so many rows in all: twice an expert's average, since loads differ."""
    average = -(-rows // experts)
    if average > 32:
        return MANY
    return max(8, 1 << (2 * average - 1).bit_length())


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
    assert a_scale is not None and b_scale is not None, "the FP8 dtype of a promises scales"
    tile = token_tile(expected_m, b.shape[0])
    if sorted_token_ids is not None and not 0 < tile <= GATHERED:
        a, a_scale, sorted_token_ids = a[sorted_token_ids], a_scale[sorted_token_ids], None
    return multiply(a, a_scale, b, b_scale, offsets, out_dtype, tile, 0, sorted_token_ids, expected_m)


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
    """One launch for both where few tokens leave a dense product too small to fill the GPU; else one after the other."""
    (values, scales), (weight, weight_scale) = dense, dense_weight
    first = values.shape[0]
    rows = a.shape[0] if sorted_token_ids is None else sorted_token_ids.shape[0]
    out = torch.empty(first + rows, b.shape[1], dtype=out_dtype, device=a.device)
    tile = token_tile(expected_m, b.shape[0])
    if first > TOGETHER or tile == MANY:
        multiply_into(
            out[:first], values, scales, weight[None], weight_scale[None], None, dense_tile(first, b.shape[1])
        )
        if sorted_token_ids is not None and not 0 < tile <= GATHERED:
            a, a_scale, sorted_token_ids = a[sorted_token_ids], a_scale[sorted_token_ids], None
        multiply_into(out[first:], a, a_scale, b, b_scale, offsets, tile, 0, sorted_token_ids, expected_m)
        return out
    if sorted_token_ids is not None and tile > GATHERED:
        a, a_scale, sorted_token_ids = a[sorted_token_ids], a_scale[sorted_token_ids], None
    settled = weights_are_static(weight)
    a, b, values, weight = (aligned_rows(x).view(torch.uint8) for x in (a, b, values, weight))
    product = values, scales, weight[None], weight_scale[None], out[:first]
    load("fp8_gemm").swap_ab_with_shared(
        tile, settled, *product, a, a_scale, b, b_scale, offsets, sorted_token_ids, out[first:], expected_m
    )
    return out
