"""GEMM of rows sorted by expert in plain PyTorch, one expert after the other."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from ..types import GroupedRows, Quantized
from .fp8_gemm import fp8_gemm
from .wide import widened


def grouped_gemm(routed: GroupedRows) -> torch.Tensor:
    return by_expert(routed, _product, fp8_gemm)


def by_expert(routed: GroupedRows, product: Callable[..., Any], fp8_product: Callable[..., Any]) -> torch.Tensor:
    """`grouped_gemm` by product(rows, weight, out_dtype) or fp8_product(rows, weight, weight_scale, out_dtype) of each expert."""
    values, scales = routed.gathered()
    weight, weight_scale, out_dtype = routed.weight, routed.weight_scale, routed.out_dtype
    out = torch.empty(values.shape[0], weight.shape[1], dtype=out_dtype, device=values.device)
    for expert, (start, end) in enumerate(pairwise(routed.offsets.tolist())):
        if start == end:
            continue
        if scales is None or weight_scale is None:
            out[start:end] = product(values[start:end], weight[expert], out_dtype)
        else:
            rows = Quantized(values[start:end], scales[start:end])
            out[start:end] = fp8_product(rows, weight[expert], weight_scale[expert], out_dtype)
    return out


def _product(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    # A wider output dtype keeps the fp32 bits of the product, instead of widening rounded ones.
    wide = torch.promote_types(x.dtype, out_dtype)
    rows, columns = widened(x.to(wide), weight.to(wide))
    return rows @ columns.T


def grouped_gemm_with_shared(
    routed: GroupedRows, dense: Quantized, dense_weight: Quantized, beside_previous: bool = False
) -> torch.Tensor:
    return torch.cat((fp8_gemm(dense, *dense_weight, routed.out_dtype), grouped_gemm(routed)))
