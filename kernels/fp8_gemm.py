"""FP8 matrix product with block scales: the projections of the model as deployed."""

import torch

from .checks import check_tensor
from .choice import choose
from .quantize import Quantized


def fp8_gemm(
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    backend: str = "auto",
) -> torch.Tensor:
    """a [M, K] times weight [N, K] transposed, fp32 accumulation -> [M, N] in `out_dtype` (bf16 or fp32).

    out = sum over 128-wide slices of K of (a_slice @ weight_slice^T) * (activation scale * weight scale).
    a: values e4m3 [M, K], scales fp32 [M, ceil(K / 128)]; weight e4m3 [N, K], weight_scale fp32 [ceil(N / 128), ceil(K / 128)].
    """
    values, scales = a
    check_tensor("a.values", values, (None, None), torch.float8_e4m3fn)
    rows, width = values.shape
    blocks = -(-width // 128)
    check_tensor("a.scales", scales, (rows, blocks), torch.float32, values.device)
    check_tensor("weight", weight, (None, width), torch.float8_e4m3fn, values.device)
    check_tensor("weight_scale", weight_scale, (-(-weight.shape[0] // 128), blocks), torch.float32, values.device)
    if rows == 0:
        return values.new_empty(0, weight.shape[0], dtype=out_dtype)
    result: torch.Tensor = choose("fp8_gemm", values, backend)(values, scales, weight, weight_scale, out_dtype)
    return result
