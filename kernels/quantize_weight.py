"""FP8 quantisation of weights, when a checkpoint is read: as in quantize.py, with one scale per block of 128 x 128."""

import torch

from .checks import FLOATS, check_tensor
from .reference import quantize_weight as reference
from .reference.quantize import GROUP
from .types import Quantized


def quantize_weight(weight: torch.Tensor, ue8m0: bool = True) -> Quantized:
    """Quantise a weight [N, K] in 128 x 128 blocks; scales [ceil(N / 128), ceil(K / 128)]."""
    check_tensor("weight", weight, (None, None), (*FLOATS, torch.float16))
    return Quantized(*reference.quantize_weight(weight, ue8m0))


def dequantize_weight(
    weight: torch.Tensor,
    scale: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply a weight [N, K] e4m3 by its block scales [ceil(N / 128), ceil(K / 128)], in `dtype`.

    `out` [N, K] is written and returned. New memory of this size takes longer than the conversion on a CPU.
    """
    check_tensor("weight", weight, (None, None), torch.float8_e4m3fn)
    blocks = tuple(-(-size // GROUP) for size in weight.shape)
    check_tensor("scale", scale, blocks, torch.float32, weight.device)
    if out is None:
        out = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    check_tensor("out", out, tuple(weight.shape), dtype, weight.device)
    reference.dequantize_weight(weight, scale, out)
    return out
