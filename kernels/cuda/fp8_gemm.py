"""Block-scaled FP8 products on Hopper: which kernel and tile serves how many rows."""

from collections.abc import Sequence

import torch
from torch.nn.functional import ScalingType, scaled_mm

from ..build import load
from ..padding import aligned_rows

MANY = 0  # the kernel for many tokens; other tiles are those of the kernel for few
TOGETHER = 64  # rows up to which several weights share a launch: one tile of tokens


def token_tile(rows: int, columns: int) -> int:
    """The tile for a product of so many rows and weight rows."""
    if rows <= 64:
        return max(8, 1 << (rows - 1).bit_length())
    if -(-rows // 128) * -(-columns // 128) > 66:
        return MANY
    return 64 if rows <= 128 else 128  # half of an H100 and less: the kernel for few cuts K, too


def weights_are_static(*weights: torch.Tensor) -> bool:
    """Whether a kernel may read these before the one launched right before it has ended: in a step that is captured in a CUDA
    graph, whose weights were made long ago and not copied just now.
    """
    return torch.cuda.is_current_stream_capturing() and all(aligned_rows(weight) is weight for weight in weights)


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
    """a [M, K] times b [E, N, K] into out [M, N]; `splits` parts of K, or as many as fill the GPU.

    `sorted_token_ids` int32 [M]: row r of out is of row sorted_token_ids[r] of a, with tiles of up to 32 tokens. `expected_tiles`:
    about how many of the token tiles that there may be are not empty; 0: all.
    """
    settled = weights_are_static(b)
    a, b = (aligned_rows(x).view(torch.uint8) for x in (a, b))
    library = load("fp8_gemm")
    if tile == MANY:  # a tile's scales of a slice in one piece, as the TMA copies them
        scales = torch.empty(a_scale.shape[1], -(-out.shape[0] // 4) * 4, dtype=torch.float32, device=a.device)
        library.large_m(a, a_scale, b, b_scale, offsets, out, scales)
    else:
        library.swap_ab(tile, splits, settled, a, a_scale, b, b_scale, offsets, sorted_token_ids, out, expected_tiles)


def library_serves(rows: int, columns: int, width: int, out_dtype: torch.dtype) -> bool:
    """Whether cuBLASLt takes this product and was measured to be faster: up to 20 % with 4096 rows, no more with 2048.

    It refuses row counts and widths that leave the scales' rows off 16 bytes, and has refused a product of 256 columns. What is
    sent to it lies within what was measured.
    """
    fits = rows % 16 == 0 and columns % 16 == 0 and width % 512 == 0
    return fits and rows > 2048 and columns >= 2048 and width >= 1536 and out_dtype == torch.bfloat16


def library_multiply(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """The same product by cuBLASLt, which wants the scales of a in columns: a copy of them."""
    return scaled_mm(
        aligned_rows(a),
        aligned_rows(b).T,
        a_scale.T.contiguous().T,
        ScalingType.BlockWise1x128,
        b_scale.contiguous().T,
        ScalingType.BlockWise128x128,
        output_dtype=out_dtype,
    )


def fp8_gemm(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    (rows, width), columns = a.shape, b.shape[0]
    if library_serves(rows, columns, width, out_dtype):
        try:
            return library_multiply(a, a_scale, b, b_scale, out_dtype)
        except RuntimeError as error:  # it has no kernel for some shapes, and no way to ask
            if "CUBLAS_STATUS_NOT_SUPPORTED" not in str(error):
                raise
    return multiply(a, a_scale, b[None], b_scale[None], None, out_dtype, token_tile(rows, columns))


def fp8_gemms(
    a: torch.Tensor, a_scale: torch.Tensor, weights: Sequence[tuple[torch.Tensor, torch.Tensor]], out_dtype: torch.dtype
) -> list[torch.Tensor]:
    rows = a.shape[0]
    if rows > TOGETHER or len(weights) not in (2, 3):
        return [fp8_gemm(a, a_scale, weight, scale, out_dtype) for weight, scale in weights]
    settled = weights_are_static(*(weight for weight, _ in weights))
    a = aligned_rows(a).view(torch.uint8)
    outs = [torch.empty(rows, weight.shape[0], dtype=out_dtype, device=a.device) for weight, _ in weights]
    operands: list[torch.Tensor] = []
    for (weight, scale), out in zip(weights, outs, strict=True):
        operands += (aligned_rows(weight).view(torch.uint8)[None], scale[None], out)
    library = load("fp8_gemm")
    launch = library.swap_ab_2 if len(weights) == 2 else library.swap_ab_3
    launch(token_tile(rows, 0), settled, a, a_scale, *operands)
    return outs
