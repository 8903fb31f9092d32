"""Matrix products of rows sorted by expert, each with its expert's weight."""

from typing import NamedTuple

import torch

from .checks import FLOATS, check_tensor
from .choice import choose
from .quantize import Quantized


class ExpertGroups(NamedTuple):
    """Where each (token, choice) pair stands once sorted by expert. Made on the device, without host synchronisation."""

    order: torch.Tensor  # int64 [T * k]: sorted row r is pair order[r], token order[r] // k
    offsets: torch.Tensor  # int32 [E + 1]: expert e owns sorted rows offsets[e] to offsets[e + 1]


def group_by_expert(experts: torch.Tensor, count: int) -> ExpertGroups:
    """Sort the pairs of `experts` (int [T, k]) by expert; stable, so deterministic.

    Values are below `count`, or equal to it for the experts of other ranks: those pairs come last, past offsets[count].
    """
    sorted_experts, order = experts.flatten().sort(stable=True)
    edges = torch.arange(count + 1, device=experts.device, dtype=sorted_experts.dtype)
    return ExpertGroups(order, torch.searchsorted(sorted_experts, edges).int())


def grouped_gemm(
    a: torch.Tensor | Quantized,
    weight: torch.Tensor,
    offsets: torch.Tensor,
    weight_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """Row r of a [M, K] times weight[e] [N, K] transposed, e the expert whose offsets enclose r -> [M, N].

    Plain (a and weight [E, N, K] of one dtype) or FP8 (a Quantized; weight e4m3 with weight_scale fp32 [E, N/128, K/128],
    rounded up). offsets int32 [E + 1] on the device, from 0 to at most M; rows past offsets[E] are left as they come.
    """
    values, scales = a if isinstance(a, Quantized) else (a, None)
    device = values.device
    check_tensor("a", values, (None, None), FLOATS if scales is None else torch.float8_e4m3fn)
    check_tensor("weight", weight, (None, None, values.shape[1]), values.dtype, device)
    check_tensor("offsets", offsets, (weight.shape[0] + 1,), torch.int32, device)
    blocks = -(-values.shape[1] // 128)
    if scales is not None:
        if weight_scale is None:
            raise ValueError("weight_scale is None, expected the block scales of an FP8 weight")
        check_tensor("a.scales", scales, (values.shape[0], blocks), torch.float32, device)
        shape = (weight.shape[0], -(-weight.shape[1] // 128), blocks)
        check_tensor("weight_scale", weight_scale, shape, torch.float32, device)
    dtype = out_dtype or (torch.bfloat16 if scales is not None else values.dtype)
    if values.shape[0] == 0:
        return values.new_empty(0, weight.shape[1], dtype=dtype)
    body = choose("grouped_gemm", values, backend)
    result: torch.Tensor = body(values, weight, offsets, scales, weight_scale, dtype)
    return result
