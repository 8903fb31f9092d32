"""MoE routing: the choice of experts, the sorting of rows by expert, and the weighted sum of the experts' outputs."""

import torch

from .checks import FLOATS, check_tensor
from .registry import Preference, choose
from .types import ExpertChoice, ExpertGroups, ExpertOutputs, Normed, Quantized


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int = 1,
    topk_groups: int = 1,
    normalise: bool = True,
    scale: float = 1.0,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits fp32 [T, E], bias fp32 [E] -> experts int64 [T, topk] and their weights fp32 [T, topk], best first.

    s = sigmoid(logits). Neighbouring experts form `num_groups` equal groups, of which the `topk_groups` are kept whose two largest
    s + bias have the largest sum. Of their experts, the topk with the largest s + bias are chosen. Of equal values the lowest index
    wins; NaN is the largest. weight = scale * s, divided by (sum of the chosen s + 1e-20) if `normalise`.
    On a GPU the kernel reads bias before the previous kernel has ended, so that kernel must not write it.
    Source: DeepSeek-V3 report, section 2.1.2.
    """
    choice = ExpertChoice(topk, num_groups, topk_groups, normalise, scale)
    _check_route(logits, bias, choice)
    chosen, weights = choose("route", logits, backend)(logits, bias, choice)
    return chosen, weights


def _check_route(logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> None:
    topk, num_groups, topk_groups, *_ = choice
    check_tensor("logits", logits, (None, None), torch.float32)
    experts = logits.shape[1]
    check_tensor("bias", bias, (experts,), torch.float32, logits.device)
    if num_groups < 1 or experts % num_groups:
        raise ValueError(f"num_groups is {num_groups}; expected a divisor of {experts} experts")
    if not 1 <= topk_groups <= num_groups:
        raise ValueError(f"topk_groups is {topk_groups}; expected 1 to {num_groups}")
    if not 1 <= topk <= experts:
        raise ValueError(f"topk is {topk}; expected 1 to {experts}")


def _check_group(count: int, step: int) -> None:
    if count < 1:
        raise ValueError(f"count is {count}; expected at least 1")
    if step < 1:
        raise ValueError(f"step is {step}; expected at least 1")


def group_by_expert(
    experts: torch.Tensor, count: int, first: int = 0, step: int = 1, *, backend: str | Preference = "auto"
) -> ExpertGroups:
    """Sort the pairs of `experts` (int64 [T, k]) by expert; pairs of one expert keep their order.

    This rank has `count` experts: every `step`-th from number `first` on. Pairs of other experts come last, from offsets[count] on.
    """
    check_tensor("experts", experts, (None, None), torch.int64)
    _check_group(count, step)
    return ExpertGroups(*choose("group_by_expert", experts, backend)(experts, count, first, step))


def route_and_group(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int = 1,
    topk_groups: int = 1,
    normalise: bool = True,
    scale: float = 1.0,
    count: int | None = None,
    first: int = 0,
    step: int = 1,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, ExpertGroups]:
    """`route` and `group_by_expert`, which a decode step does in one launch -> weights fp32 [T, topk] and the groups.

    The rank's `count` experts are all E if it is None.
    """
    choice = ExpertChoice(topk, num_groups, topk_groups, normalise, scale)
    _check_route(logits, bias, choice)
    count = logits.shape[1] if count is None else count
    _check_group(count, step)
    weights, *groups = choose("route_and_group", logits, backend)(logits, bias, choice, count, first, step)
    return weights, ExpertGroups(*groups)


def combine_experts(
    rows: torch.Tensor,
    groups: ExpertGroups,
    weights: torch.Tensor,
    shared: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """out[t] = sum over its k pairs of weights[t, i] * rows[groups.inverse_permutation[t, i]], plus shared[t] -> [T, D].

    The sum is made in fp32 and rounded once. rows [T * k, D] are sorted by expert; those past the last expert's are not read and
    count as zero. weights fp32 [T, k]; shared [T, D] of rows' dtype, or None.
    """
    outputs = ExpertOutputs(rows, groups, weights, shared)
    _check_combination(outputs)
    return choose("combine_experts", rows, backend)(outputs)


def combine_norm_quantize(
    rows: torch.Tensor,
    groups: ExpertGroups,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    ue8m0: bool = True,
    *,
    backend: str | Preference = "auto",
) -> Normed:
    """`combine_experts`, and `rms_norm_quantize` of `residual` [T, D] plus its result, in one pass over both."""
    outputs = ExpertOutputs(rows, groups, weights, shared)
    _check_combination(outputs)
    tokens = groups.inverse_permutation.shape[0]
    check_tensor("residual", residual, (tokens, rows.shape[1]), rows.dtype, rows.device)
    check_tensor("norm_weight", norm_weight, (rows.shape[1],), torch.float32, rows.device)
    implementation = choose("combine_norm_quantize", rows, backend)
    total, normed, values, scales = implementation(outputs, residual, norm_weight, eps, ue8m0)
    return Normed(total, normed, Quantized(values, scales))


def _check_combination(outputs: ExpertOutputs) -> None:
    rows, groups, weights, shared = outputs
    check_tensor("groups.inverse_permutation", groups.inverse_permutation, (None, None), torch.int32, rows.device)
    check_tensor("groups.offsets", groups.offsets, (None,), torch.int32, rows.device)
    tokens, topk = groups.inverse_permutation.shape
    check_tensor("rows", rows, (tokens * topk, None), FLOATS)
    check_tensor("weights", weights, (tokens, topk), torch.float32, rows.device)
    if shared is not None:
        check_tensor("shared", shared, (tokens, rows.shape[1]), rows.dtype, rows.device)
