"""MoE routing on the GPU, one kernel each for the choice of experts, the sorting and the weighted sum.

Shapes that the kernels do not support run in the reference.
"""

import torch

from ..build import load
from ..reference import routing as reference
from ..routing import ExpertGroups

MAX_EXPERTS, MAX_GROUPS, MAX_TOPK = 1023, 32, 32

FALLS_BACK = {
    "route": f"torch beyond {MAX_EXPERTS} experts, {MAX_GROUPS} groups or top-{MAX_TOPK}",
    "group_by_expert": f"torch beyond {MAX_EXPERTS} experts",
}


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int,
    topk_groups: int,
    normalise: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, count = logits.shape
    if count > MAX_EXPERTS or num_groups > MAX_GROUPS or topk > MAX_TOPK:
        return reference.route(logits, bias, topk, num_groups, topk_groups, normalise, scale)
    experts = torch.empty(tokens, topk, dtype=torch.int64, device=logits.device)
    weights = torch.empty(tokens, topk, dtype=torch.float32, device=logits.device)
    if tokens:
        load("routing").route(logits, bias, experts, weights, num_groups, topk_groups, normalise, scale)
    return experts, weights


def group_by_expert(
    experts: torch.Tensor, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if count > MAX_EXPERTS or not experts.numel() or not experts.is_contiguous():
        return reference.group_by_expert(experts, count, first, step)
    sorted_token_ids = torch.empty(experts.numel(), dtype=torch.int32, device=experts.device)
    inverse_permutation = torch.empty(experts.shape, dtype=torch.int32, device=experts.device)
    offsets = torch.empty(count + 1, dtype=torch.int32, device=experts.device)
    load("routing").group_by_expert(experts, sorted_token_ids, inverse_permutation, offsets, first, step)
    return sorted_token_ids, inverse_permutation, offsets


def combine_experts(
    rows: torch.Tensor, groups: ExpertGroups, weights: torch.Tensor, shared: torch.Tensor | None
) -> torch.Tensor:
    _, inverse_permutation, offsets = groups
    out = torch.empty(inverse_permutation.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    if out.numel():
        load("routing").combine_experts(
            rows, inverse_permutation.contiguous(), offsets, weights.contiguous(), shared, out
        )
    return out
