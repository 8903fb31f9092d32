"""GEMM of rows sorted by expert in plain PyTorch, one expert after the other."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from ..types import GroupedRows, Quantized
from .fp8_gemm import fp8_gemm
from .wide import widened


def _product(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    # A wider output dtype keeps the fp32 bits of the product, instead of widening rounded ones.
    wide = torch.promote_types(x.dtype, out_dtype)
    rows, columns = widened(x.to(wide), weight.to(wide))
    return rows @ columns.T


def grouped_gemm(
    routed: GroupedRows, product: Callable[..., Any] = _product, fp8_product: Callable[..., Any] = fp8_gemm
) -> None:
    """By product(rows, weight, out_dtype) or fp8_product, an `fp8_gemm`, of each expert."""
    weight, weight_scale, out = routed.weight, routed.weight_scale, routed.out
    slots = range(routed.experts) if routed.slots is None else routed.slots.tolist()
    for slot, (start, end) in zip(slots, pairwise(routed.offsets.tolist()), strict=True):
        if start == end or slot < 0:
            continue
        values, scales = routed.gathered(slice(start, end))
        own = weight[slot]
        if scales is None or weight_scale is None:
            out[start:end] = product(values, own, out.dtype)
        else:
            out[start:end] = fp8_product(Quantized(values, scales), own, weight_scale[slot], out.dtype, False)


def grouped_gemm_with_shared(
    routed: GroupedRows,
    dense: Quantized,
    dense_weight: Quantized,
    out: torch.Tensor,
    beside_previous: bool,
    fp8_product: Callable[..., Any] = fp8_gemm,
) -> None:
    out.copy_(fp8_product(dense, *dense_weight, out.dtype, False))
    grouped_gemm(routed, fp8_product=fp8_product)
