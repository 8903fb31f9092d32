"""Small fp32 computations in plain PyTorch."""

import torch
import torch.nn.functional as F

from .linear import linear


def fp32_linear(x: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    # `linear` multiplies in fp64 on a GPU, which only fp32 tokens are worth.
    multiply = F.linear if x.is_cuda and x.dtype != torch.float32 else linear
    product = multiply(x.float(), weight)
    return product if scale == 1.0 else product * scale


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x.float(), (x.shape[-1],), weight, bias, eps).to(x.dtype)
