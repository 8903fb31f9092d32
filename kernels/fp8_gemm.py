"""FP8 GEMM with block scales: the linear projections of the model in FP8 precision."""

from collections.abc import Sequence

import torch

from .checks import FLOATS, check_dtype, check_tensor
from .registry import Preference, choose
from .types import Quantized


def fp8_gemm(
    a: Quantized,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    beside_previous: bool = False,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """a [M, K] times weight [N, K] transposed, accumulated in fp32 -> [M, N] in `out_dtype` (bf16 or fp32).

    out = sum over 128-wide slices of K of (a_slice @ weight_slice^T) * (activation scale * weight scale).
    a: values e4m3 [M, K], scales fp32 [M, ceil(K / 128)]; weight e4m3 [N, K], weight_scale fp32 [ceil(N / 128), ceil(K / 128)].
    beside_previous: `a` was complete before the previous operation on the stream began. A captured step may then run the product
    at the same time as that operation, instead of after it; the result is the same.
    """
    _check(a, Quantized(weight, weight_scale))
    check_dtype("out_dtype", out_dtype, FLOATS)
    if a.values.shape[0] == 0:
        return a.values.new_empty(0, weight.shape[0], dtype=out_dtype)
    return choose("fp8_gemm", a.values, backend)(a, weight, weight_scale, out_dtype, beside_previous)


def fp8_gemms(
    a: Quantized,
    weights: Sequence[Quantized],
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    backend: str | Preference = "auto",
) -> list[torch.Tensor]:
    """Multiply a [M, K] by each of several weights (values [N, K] and block scales), like fp8_gemm -> [M, N] each."""
    _check(a, *weights)
    check_dtype("out_dtype", out_dtype, FLOATS)
    if a.values.shape[0] == 0:
        return [a.values.new_empty(0, weight.values.shape[0], dtype=out_dtype) for weight in weights]
    return list(choose("fp8_gemms", a.values, backend)(a, weights, out_dtype))


def _check(a: Quantized, *weights: Quantized) -> None:
    values, scales = a
    check_tensor("a.values", values, (None, None), torch.float8_e4m3fn)
    rows, width = values.shape
    device, blocks = values.device, -(-width // 128)
    check_tensor("a.scales", scales, (rows, blocks), torch.float32, device)
    for weight, weight_scale in weights:
        check_tensor("weight", weight, (None, width), torch.float8_e4m3fn, device)
        check_tensor("weight_scale", weight_scale, (-(-weight.shape[0] // 128), blocks), torch.float32, device)
