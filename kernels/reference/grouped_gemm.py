"""GEMM of rows sorted by expert in plain PyTorch, one expert after the other."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from ..types import Quantized
from .fp8_gemm import fp8_gemm
from .wide import widened


def grouped_gemm(
    a: torch.Tensor | Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor | None,
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
) -> torch.Tensor:
    return by_expert(a, weight, offsets, weight_scale, out_dtype, sorted_token_ids, _product, fp8_gemm)


def by_expert(
    a: torch.Tensor | Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor | None,
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    product: Callable[..., Any],
    fp8_product: Callable[..., Any],
) -> torch.Tensor:
    """`grouped_gemm` by product(rows, weight, out_dtype) or fp8_product(rows, weight, weight_scale, out_dtype) of each expert."""
    values, scales = a if isinstance(a, Quantized) else (a, None)
    if sorted_token_ids is not None:
        values, scales = values[sorted_token_ids], None if scales is None else scales[sorted_token_ids]
    out = torch.empty(values.shape[0], weight.shape[1], dtype=out_dtype, device=values.device)
    for expert, (start, end) in enumerate(pairwise(offsets.tolist())):
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
    a: Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor,
    dense: Quantized,
    dense_weight: Quantized,
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
    beside_previous: bool = False,
) -> torch.Tensor:
    shared = fp8_gemm(dense, *dense_weight, out_dtype)
    routed = grouped_gemm(a, weight, offsets, weight_scale, out_dtype, sorted_token_ids, expected_m)
    return torch.cat((shared, routed))
