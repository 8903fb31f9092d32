"""Small fp32 computations on the GPU, a launch each. What does not fit the kernels runs in the reference."""

import torch

from ..build import load
from ..reference import fp32_ops as reference
from .fp8_gemm import weights_are_static

FEW = 32  # tokens up to which reading the weight is what counts; cuBLAS takes more
_LINEAR, _NORM = 8192, 256  # columns at most


def fp32_linear(x: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    tokens, width = x.shape
    whole = x.stride(0) % 4 == 0 and width % 4 == 0 and not (x.data_ptr() % 16 or weight.data_ptr() % 16)
    if not 0 < tokens <= FEW or not 0 < width <= _LINEAR or not whole or not weight.is_contiguous():
        return reference.fp32_linear(x, weight, scale)
    out = torch.empty(tokens, weight.shape[0], dtype=torch.float32, device=x.device)
    if out.numel():
        load("fp32_ops").fp32_linear(x, weight, out, scale, weights_are_static(weight))
    return out


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    if not 0 < x.shape[1] <= _NORM:
        return reference.layer_norm(x, weight, bias, eps)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        load("fp32_ops").layer_norm(x, weight, bias, out, eps)
    return out
