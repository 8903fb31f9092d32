"""Grouped GEMM: rows sorted by expert, each multiplied with the weight of its expert."""

import torch

from .checks import FLOATS, check_dtype, check_tensor
from .registry import Preference, choose
from .types import GroupedRows, Quantized


def grouped_gemm(
    a: torch.Tensor | Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    *,
    sorted_token_ids: torch.Tensor | None = None,
    expected_m: int | None = None,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Row r of a [M, K] times weight[e] [N, K] transposed -> [M, N], where offsets[e] <= r < offsets[e + 1].

    Plain (a and weight [E, N, K] of one dtype) or FP8 (a Quantized; weight e4m3 with weight_scale fp32 [E, N/128, K/128],
    rounded up). offsets int32 [E + 1] on the device, from 0 to at most M; rows from offsets[E] on hold anything.
    With `sorted_token_ids` int32 [M], row r is row sorted_token_ids[r] of a, which may have any number of rows. `expected_m`: about
    how many of the M rows belong to these experts, all of them together; it changes the speed, not the result. None: all M.
    """
    values = a.values if isinstance(a, Quantized) else a
    dtype = out_dtype or (torch.bfloat16 if isinstance(a, Quantized) else values.dtype)
    routed = _checked(GroupedRows(a, weight, offsets, weight_scale, dtype, sorted_token_ids, 0), expected_m)
    if routed.rows == 0:
        return values.new_empty(0, weight.shape[1], dtype=dtype)
    result: torch.Tensor = choose("grouped_gemm", values, backend)(routed)
    return result


def grouped_gemm_with_shared(
    a: Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor,
    dense: Quantized,
    dense_weight: Quantized,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    sorted_token_ids: torch.Tensor | None = None,
    expected_m: int | None = None,
    beside_previous: bool = False,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """The products of the shared expert and of the routed experts -> [T + M, N].

    First come dense [T, K] times dense_weight [N, K] transposed, then the rows of grouped_gemm.
    beside_previous: `dense` was complete before the previous operation on the stream began (see fp8_gemm).
    """
    routed = _checked(GroupedRows(a, weight, offsets, weight_scale, out_dtype, sorted_token_ids, 0), expected_m)
    count, width = weight.shape[1:]
    blocks = -(-width // 128)
    device = a.values.device
    check_tensor("dense.values", dense.values, (None, width), a.values.dtype, device)
    check_tensor("dense.scales", dense.scales, (dense.values.shape[0], blocks), torch.float32, device)
    check_tensor("dense_weight.values", dense_weight.values, (count, width), a.values.dtype, device)
    check_tensor("dense_weight.scales", dense_weight.scales, (-(-count // 128), blocks), torch.float32, device)
    if routed.rows == 0 or dense.values.shape[0] == 0:
        raise ValueError(f"a has {routed.rows} rows and dense {dense.values.shape[0]}; expected at least one of each")
    implementation = choose("grouped_gemm_with_shared", a.values, backend)
    result: torch.Tensor = implementation(routed, dense, dense_weight, beside_previous)
    return result


def _checked(routed: GroupedRows, expected_m: int | None) -> GroupedRows:
    """Check the operands and set `expected_m`."""
    a, weight, offsets, weight_scale, out_dtype, sorted_token_ids, _ = routed
    values, scales = a if isinstance(a, Quantized) else (a, None)
    device = values.device
    check_tensor("a", values, (None, None), FLOATS if scales is None else torch.float8_e4m3fn)
    check_tensor("weight", weight, (None, None, values.shape[1]), values.dtype, device)
    check_tensor("offsets", offsets, (weight.shape[0] + 1,), torch.int32, device)
    if sorted_token_ids is not None:
        check_tensor("sorted_token_ids", sorted_token_ids, (None,), torch.int32, device)
    if scales is not None:
        if weight_scale is None:
            raise ValueError("weight_scale is None; expected the block scales of an FP8 weight")
        blocks = -(-values.shape[1] // 128)
        check_tensor("a.scales", scales, (values.shape[0], blocks), torch.float32, device)
        shape = (weight.shape[0], -(-weight.shape[1] // 128), blocks)
        check_tensor("weight_scale", weight_scale, shape, torch.float32, device)
    check_dtype("out_dtype", out_dtype, FLOATS)
    rows = routed.rows
    return routed._replace(expected_m=rows if expected_m is None else max(1, min(expected_m, rows)))
