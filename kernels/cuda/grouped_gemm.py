"""FP8 products of rows sorted by expert on Hopper: the kernels of fp8_gemm.py, which find each tile's expert from the offsets."""

import torch

from .fp8_gemm import MANY, multiply


def token_tile(rows: int, experts: int) -> int:
    """The tile for so many rows in all: twice an expert's average, since loads differ."""
    average = -(-rows // experts)
    if average > 32:
        return MANY
    return max(16, 1 << (2 * average - 1).bit_length())


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    assert a_scale is not None and b_scale is not None, "the FP8 dtype of a promises scales"
    return multiply(a, a_scale, b, b_scale, offsets, out_dtype, token_tile(a.shape[0], b.shape[0]))
