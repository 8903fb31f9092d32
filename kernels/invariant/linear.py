"""Dense products, batch-invariant: in fp32, rounded once, by oneDNN where it proved invariant, else by `row_products`."""

from collections.abc import Sequence
from functools import partial

import torch

from ..reference import grouped_gemm as reference
from ..reference.e4m3 import SHRUNK, shrunk_columns
from ..reference.linear import linear as packed_linear
from ..reference.quantize import GROUP
from ..types import Quantized
from .products import packed_rows, row_products

COLUMNS = 4096  # of a product: of a vocabulary table, a part is widened to fp32 at a time


def _products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in fp32. A parameter's layout is made once. Only the weight decides which of the two libraries multiplies."""
    most = 0
    if isinstance(weight, torch.nn.Parameter) and weight.is_contiguous() and len(x):
        most = packed_rows(weight.shape[1], weight.shape[0])
    if not most:
        return row_products(x, weight)
    parts = [packed_linear(part, weight) for part in x.contiguous().split(most)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def linear(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    x = x.float()
    if weight.dtype == torch.float32 and isinstance(weight, torch.nn.Parameter):
        return _products(x, weight).to(out_dtype)
    parts = [row_products(x, part.float()).to(out_dtype) for part in weight.split(COLUMNS)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def fp32_linear(x: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    product = _products(x.float(), weight)
    return product if scale == 1.0 else product * scale


def fp8_gemm(
    a: Quantized, weight: torch.Tensor, weight_scale: torch.Tensor, out_dtype: torch.dtype, beside_previous: bool
) -> torch.Tensor:
    rows, columns = a.values.shape[0], weight.shape[0]
    total = torch.zeros(rows, columns)
    for block, numbers in enumerate(shrunk_columns(weight, GROUP)):  # ascending, whatever the number of rows
        slice_ = slice(block * GROUP, (block + 1) * GROUP)
        row_scales = weight_scale[:, block].repeat_interleave(GROUP)[:columns]  # of the rows of the weight
        product = row_products(a.values[:, slice_].float() / SHRUNK, numbers)
        total += product.mul_(a.scales[:, block, None] * row_scales)
    return total.to(out_dtype)


def fp8_gemms(a: Quantized, weights: Sequence[Quantized], out_dtype: torch.dtype) -> list[torch.Tensor]:
    return [fp8_gemm(a, *weight, out_dtype, False) for weight in weights]


grouped_gemm = partial(reference.grouped_gemm, product=linear, fp8_product=fp8_gemm)
grouped_gemm_with_shared = partial(reference.grouped_gemm_with_shared, fp8_product=fp8_gemm)
