"""Grouped GEMM: rows sorted by expert, each multiplied with the weight of its expert."""

import torch

from .checks import FLOATS, check_contiguous, check_dtype, check_tensor, check_values
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
    slots: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Row r of a [M, K] times weight[e] [N, K] transposed -> [M, N], where offsets[e] <= r < offsets[e + 1].

    Plain (a and weight [E, N, K] of one dtype) or FP8 (a Quantized; weight e4m3 with weight_scale fp32 [E, N/128, K/128],
    rounded up). offsets int32 [E + 1] on the device, from 0 to at most M; rows from offsets[E] on hold anything.
    With `sorted_token_ids` int32 [M], row r is row sorted_token_ids[r] of a, which may have any number of rows. `expected_m`: about
    how many of the M rows belong to the E experts, all of them together; it changes the speed, not the result. None: all M.

    `out` [M, N], contiguous, is written and returned. `slots` int32 [E] on the device: the weight of expert e is weight[slots[e]],
    so that weight and weight_scale hold any number S of experts. If slots[e] is -1, the rows of e are not computed, and `out` keeps
    what it held there. So several calls fill one `out`. A row's bits depend neither on S nor on which experts a call computes.
    """
    values = a.values if isinstance(a, Quantized) else a
    dtype = out_dtype or (torch.bfloat16 if isinstance(a, Quantized) else values.dtype)
    _check(a, weight, offsets, weight_scale, sorted_token_ids, slots)
    rows = len(values if sorted_token_ids is None else sorted_token_ids)
    out = _output(out, rows, weight, dtype)
    if rows:
        expected_m = max(1, min(rows if expected_m is None else expected_m, rows))
        routed = GroupedRows(a, weight, offsets, weight_scale, sorted_token_ids, expected_m, out, slots)
        choose("grouped_gemm", values, backend)(routed)
    return out


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
    slots: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    beside_previous: bool = False,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """The products of the shared expert and of the routed experts -> [T + M, N].

    First come dense [T, K] times dense_weight [N, K] transposed, then the rows of grouped_gemm. With `slots` and `out` [T + M, N],
    every call computes the shared expert again, with the same bits.
    beside_previous: `dense` was complete before the previous operation on the stream began (see fp8_gemm).
    """
    _check(a, weight, offsets, weight_scale, sorted_token_ids, slots)
    count, width = weight.shape[1:]
    blocks = -(-width // 128)
    device = a.values.device
    check_tensor("dense.values", dense.values, (None, width), a.values.dtype, device)
    check_tensor("dense.scales", dense.scales, (dense.values.shape[0], blocks), torch.float32, device)
    check_tensor("dense_weight.values", dense_weight.values, (count, width), a.values.dtype, device)
    check_tensor("dense_weight.scales", dense_weight.scales, (-(-count // 128), blocks), torch.float32, device)
    tokens, rows = len(dense.values), len(a.values if sorted_token_ids is None else sorted_token_ids)
    if rows == 0 or tokens == 0:
        raise ValueError(f"a has {rows} rows and dense {tokens}; expected at least one of each")
    out = _output(out, tokens + rows, weight, out_dtype)
    expected_m = max(1, min(rows if expected_m is None else expected_m, rows))
    routed = GroupedRows(a, weight, offsets, weight_scale, sorted_token_ids, expected_m, out[tokens:], slots)
    choose("grouped_gemm_with_shared", a.values, backend)(routed, dense, dense_weight, out[:tokens], beside_previous)
    return out


def _check(
    a: torch.Tensor | Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor | None,
    sorted_token_ids: torch.Tensor | None,
    slots: torch.Tensor | None,
) -> None:
    """Check the operands of the routed experts."""
    values, scales = a if isinstance(a, Quantized) else (a, None)
    device = values.device
    check_tensor("a", values, (None, None), FLOATS if scales is None else torch.float8_e4m3fn)
    check_tensor("weight", weight, (None, None, values.shape[1]), values.dtype, device)
    check_tensor("offsets", offsets, (weight.shape[0] + 1 if slots is None else None,), torch.int32, device)
    if slots is not None:
        check_tensor("slots", slots, (len(offsets) - 1,), torch.int32, device)
        check_values("slots", slots, len(weight) - 1, "weight has {} experts", len(weight), least=-1)
    if sorted_token_ids is not None:
        check_tensor("sorted_token_ids", sorted_token_ids, (None,), torch.int32, device)
    if scales is not None:
        if weight_scale is None:
            raise ValueError("weight_scale is None; expected the block scales of an FP8 weight")
        blocks = -(-values.shape[1] // 128)
        check_tensor("a.scales", scales, (values.shape[0], blocks), torch.float32, device)
        shape = (weight.shape[0], -(-weight.shape[1] // 128), blocks)
        check_tensor("weight_scale", weight_scale, shape, torch.float32, device)


def _output(out: torch.Tensor | None, rows: int, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Check `out`, or allocate it."""
    check_dtype("out_dtype", dtype, FLOATS)
    if out is None:
        return weight.new_empty(rows, weight.shape[1], dtype=dtype)
    check_tensor("out", out, (rows, weight.shape[1]), dtype, weight.device)
    check_contiguous("out", out)
    return out
