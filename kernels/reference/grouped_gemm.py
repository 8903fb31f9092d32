"""Expert matrix products, one expert after another."""

from itertools import pairwise

import torch

from .fp8_gemm import fp8_gemm


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
) -> torch.Tensor:
    if sorted_token_ids is not None:
        a, a_scale = a[sorted_token_ids], None if a_scale is None else a_scale[sorted_token_ids]
    out = torch.empty(a.shape[0], b.shape[1], dtype=out_dtype, device=a.device)
    bounds = offsets.tolist()
    for expert, (start, end) in enumerate(pairwise(bounds)):
        if start == end:
            continue
        if a_scale is None or b_scale is None:
            # a wider output keeps the product's fp32 bits instead of widening rounded ones
            wide = torch.promote_types(a.dtype, out_dtype)
            out[start:end] = a[start:end].to(wide) @ b[expert].to(wide).T
        else:
            out[start:end] = fp8_gemm(a[start:end], a_scale[start:end], b[expert], b_scale[expert], out_dtype)
    return out


def grouped_gemm_with_shared(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    offsets: torch.Tensor,
    dense: tuple[torch.Tensor, torch.Tensor],
    dense_weight: tuple[torch.Tensor, torch.Tensor],
    out_dtype: torch.dtype,
    sorted_token_ids: torch.Tensor | None,
    expected_m: int,
) -> torch.Tensor:
    shared = fp8_gemm(*dense, *dense_weight, out_dtype)
    return torch.cat((shared, grouped_gemm(a, b, offsets, a_scale, b_scale, out_dtype, sorted_token_ids, expected_m)))
