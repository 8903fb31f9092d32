"""Small fp32 computations on the GPU, one launch each. Shapes that the kernels do not support run in the reference."""

import torch

from ..alignment import is_aligned
from ..build import load
from ..reference import fp32_ops as reference
from .pdl import weights_are_static

# fp32 tokens: up to this many the time is that of reading the weight; beyond, cuBLAS is faster. For bf16 tokens there is no limit.
MAX_TOKENS = 32
MAX_WIDTH, MAX_NORM_WIDTH = 8192, 256  # columns that the kernels hold in registers

FALLS_BACK = {
    "fp32_linear": f"torch beyond {MAX_WIDTH} dims, for unaligned rows, or for more than {MAX_TOKENS} fp32 tokens",
    "layer_norm": f"torch beyond {MAX_NORM_WIDTH} dims",
}


def fp32_linear(x: torch.Tensor, weight: torch.Tensor, scale: float, one_order: bool = False) -> torch.Tensor:
    """one_order: bf16 tokens are summed in one order for any number of them. Raises for shapes without a kernel."""
    tokens, width = x.shape
    vector = 16 // x.element_size()
    aligned = width % vector == 0 and is_aligned(x, weight)
    fits = x.dtype == torch.bfloat16 or (tokens <= MAX_TOKENS and not one_order)
    if not (tokens > 0 and fits and 0 < width <= MAX_WIDTH and aligned and weight.is_contiguous()):
        if one_order and tokens > 0:
            raise ValueError(
                f"x is {list(x.shape)} of {x.dtype}; expected aligned rows of bf16, up to {MAX_WIDTH} dims, in deterministic mode"
            )
        return reference.fp32_linear(x, weight, scale)
    out = x.new_empty(tokens, weight.shape[0], dtype=torch.float32)
    if out.numel():
        load("fp32_ops").fp32_linear(x, weight, out, scale, weights_are_static(weight), one_order)
    return out


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    if not 0 < x.shape[1] <= MAX_NORM_WIDTH:
        return reference.layer_norm(x, weight, bias, eps)
    out = x.new_empty(x.shape)
    if out.numel():
        load("fp32_ops").layer_norm(x, weight, bias, out, eps)
    return out
