"""Small operations that are fp32 in every precision: projections that decide a selection, and the LayerNorm of the index keys."""

import torch

from .checks import FLOATS, check_tensor
from .registry import Preference, choose


def fp32_linear(
    x: torch.Tensor, weight: torch.Tensor, scale: float = 1.0, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """scale * x W^T in fp32: x [T, D] fp32 or bf16, weight fp32 [N, D] -> fp32 [T, N]."""
    check_tensor("x", x, (None, None), FLOATS)
    check_tensor("weight", weight, (None, x.shape[1]), torch.float32, x.device)
    return choose("fp32_linear", x, backend)(x, weight, scale)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """LayerNorm of x [T, D] with weight and bias fp32 [D], computed in fp32 and rounded once to x's dtype."""
    check_tensor("x", x, (None, None), FLOATS)
    check_tensor("weight", weight, (x.shape[1],), torch.float32, x.device)
    check_tensor("bias", bias, (x.shape[1],), torch.float32, x.device)
    return choose("layer_norm", x, backend)(x, weight, bias, eps)
