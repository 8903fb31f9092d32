"""Block-scaled FP8 GEMM in plain PyTorch."""

from collections.abc import Sequence

import torch

from ..types import Quantized
from .e4m3 import SHRUNK, shrunk_columns
from .quantize import GROUP


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, beside_previous: bool
) -> torch.Tensor:
    rows, columns = a.values.shape[0], weight.shape[0]
    total = torch.zeros(rows, columns, dtype=torch.float32, device=weight.device)
    for block, numbers in enumerate(shrunk_columns(weight, GROUP)):
        slice_ = slice(block * GROUP, (block + 1) * GROUP)
        partial = (a.values[:, slice_].float() / SHRUNK) @ numbers.T
        row_scales = weight_scale[:, block].repeat_interleave(GROUP)[:columns]  # of the rows of the weight
        total.addcmul_(partial, a.scales[:, block, None] * row_scales)
    return total.to(out_dtype)


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    return [fp8_gemm(a, *weight, out_dtype, False) for weight in weights]
