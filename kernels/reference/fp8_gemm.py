"""Block-scaled FP8 matrix product in plain PyTorch."""

from collections.abc import Sequence

import torch

from .quantize import GROUP


def fp8_gemm(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    rows, columns = a.shape[0], b.shape[0]
    total = torch.zeros(rows, columns, dtype=torch.float32, device=a.device)
    for block in range(a_scale.shape[1]):
        slice_ = slice(block * GROUP, (block + 1) * GROUP)
        partial = a[:, slice_].float() @ b[:, slice_].float().T
        spread = b_scale[:, block].repeat_interleave(GROUP)[:columns]
        total.addcmul_(partial, a_scale[:, block, None] * spread)
    return total.to(out_dtype)


def fp8_gemms(
    a: torch.Tensor, a_scale: torch.Tensor, weights: Sequence[tuple[torch.Tensor, torch.Tensor]], out_dtype: torch.dtype
) -> list[torch.Tensor]:
    return [fp8_gemm(a, a_scale, weight, scale, out_dtype) for weight, scale in weights]
