"""Block-scaled FP8 GEMM on Hopper, and which kernel and tile serves how many rows.

Two kernels: `large_m` has 128 tokens as the M of an MMA. `swap_ab` exchanges the operands, so that few tokens are the N of an MMA,
and splits K.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import ScalingType, scaled_mm

from ..alignment import aligned_rows
from ..build import load
from ..quantize import Quantized
from .pdl import weights_are_static

LARGE_M = 0  # stands for the large-M kernel where a number would be the token tile of the swap-AB kernel
MAX_SHARED_LAUNCH_ROWS = 64  # the products of several weights share a launch up to this many rows, one token tile


def token_tile(rows: int, columns: int) -> int:
    """The token tile of the swap-AB kernel, or LARGE_M, for `rows` rows of a and `columns` rows of the weight."""
    if rows <= 64:
        return max(8, 1 << (rows - 1).bit_length())
    if -(-rows // 128) * -(-columns // 128) > 66:
        return LARGE_M
    return 64 if rows <= 128 else 128  # fewer tiles than half of an H100: the swap-AB kernel, which also splits K


def multiply(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    offsets: torch.Tensor | None,
    out_dtype: torch.dtype,
    tile: int,
    splits: int = 0,
    sorted_token_ids: torch.Tensor | None = None,
    expected_tiles: int = 0,
) -> torch.Tensor:
    """a [M, K] times b [E, N, K] -> out [M, N], as `multiply_into` writes it."""
    rows = a.shape[0] if sorted_token_ids is None else sorted_token_ids.shape[0]
    out = torch.empty(rows, b.shape[1], dtype=out_dtype, device=a.device)
    multiply_into(out, a, a_scale, b, b_scale, offsets, tile, splits, sorted_token_ids, expected_tiles)
    return out


def multiply_into(
    out: torch.Tensor,
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    offsets: torch.Tensor | None,
    tile: int,
    splits: int = 0,
    sorted_token_ids: torch.Tensor | None = None,
    expected_tiles: int = 0,
) -> None:
    """a [M, K] times b [E, N, K] into out [M, N]. K is split into `splits` parts; 0: as many as fill the GPU.

    `sorted_token_ids` int32 [M], with tiles of up to 32 tokens: row r of out is computed from row sorted_token_ids[r] of a.
    `expected_tiles`: about how many of the possible token tiles are not empty; 0: all.
    """
    static_weights = weights_are_static(b)
    a, b = (aligned_rows(x).view(torch.uint8) for x in (a, b))
    library = load("fp8_gemm")
    if tile == LARGE_M:  # scratch memory for the scales of a, transposed so that the TMA copies those of a tile at once
        scales = torch.empty(a_scale.shape[1], -(-out.shape[0] // 4) * 4, dtype=torch.float32, device=a.device)
        library.large_m(a, a_scale, b, b_scale, offsets, out, scales)
    else:
        library.swap_ab(
            tile, splits, static_weights, a, a_scale, b, b_scale, offsets, sorted_token_ids, out, expected_tiles
        )


def library_serves(rows: int, columns: int, width: int, out_dtype: torch.dtype) -> bool:
    """Whether cuBLASLt supports this product and was measured to be faster: by up to 20 % with 4096 rows, not with 2048.

    It refuses row counts and widths for which rows of scales are not aligned to 16 bytes, and has refused a product of 256 columns.
    Only shapes within the measured range are sent to it.
    """
    fits = rows % 16 == 0 and columns % 16 == 0 and width % 512 == 0
    return fits and rows > 2048 and columns >= 2048 and width >= 1536 and out_dtype == torch.bfloat16


def library_multiply(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """The product of a [M, K] and b [N, K] by cuBLASLt, which needs a column-major copy of the scales of a."""
    return scaled_mm(
        aligned_rows(a),
        aligned_rows(b).T,
        a_scale.T.contiguous().T,
        ScalingType.BlockWise1x128,
        b_scale.contiguous().T,
        ScalingType.BlockWise128x128,
        output_dtype=out_dtype,
    )


def fp8_gemm(a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    (rows, width), columns = a.values.shape, weight.shape[0]
    if library_serves(rows, columns, width, out_dtype):
        try:
            return library_multiply(*a, weight, weight_scale, out_dtype)
        except RuntimeError as error:  # cuBLASLt has no kernel for some shapes, and no way to ask
            if "CUBLAS_STATUS_NOT_SUPPORTED" not in str(error):
                raise
    return multiply(*a, weight[None], weight_scale[None], None, out_dtype, token_tile(rows, columns))


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    rows = a.values.shape[0]
    if rows > MAX_SHARED_LAUNCH_ROWS or len(weights) not in (2, 3):
        return [fp8_gemm(a, *weight, out_dtype) for weight in weights]
    static_weights = weights_are_static(*(weight.values for weight in weights))
    values = aligned_rows(a.values).view(torch.uint8)
    outs = [torch.empty(rows, len(weight.values), dtype=out_dtype, device=values.device) for weight in weights]
    operands: list[torch.Tensor] = []
    for weight, out in zip(weights, outs, strict=True):
        operands += (aligned_rows(weight.values).view(torch.uint8)[None], weight.scales[None], out)
    library = load("fp8_gemm")
    launch = library.swap_ab_2 if len(weights) == 2 else library.swap_ab_3
    launch(token_tile(rows, 0), static_weights, values, a.scales, *operands)
    return outs
