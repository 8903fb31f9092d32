"""Dense products with a weight that is not quantised."""

import torch

from .checks import FLOATS, check_dtype, check_tensor
from .registry import Preference, choose


def linear(
    x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype | None = None, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """x W^T: x [T, K] and weight [N, K] of one dtype, fp32 or bf16 -> [T, N] in `out_dtype`, by default x's.

    Sums are fp32 and rounded once; with out_dtype fp32 they are not rounded.
    """
    check_tensor("x", x, (None, None), FLOATS)
    check_tensor("weight", weight, (None, x.shape[1]), x.dtype, x.device)
    dtype = out_dtype or x.dtype
    check_dtype("out_dtype", dtype, FLOATS)
    return choose("linear", x, backend)(x, weight, dtype)
