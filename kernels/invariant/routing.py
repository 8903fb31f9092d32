"""MoE routing, batch-invariant: sigmoid from steps that are rounded alike everywhere, experts' outputs summed in their order."""

import torch

from ..reference.quantize import rms_norm_quantize
from ..reference.routing import choose_experts, group_by_expert
from ..types import ExpertGroups
from .quantize import sigmoid


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int,
    topk_groups: int,
    normalise: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return choose_experts(sigmoid(logits), bias, topk, num_groups, topk_groups, normalise, scale)


def route_and_group(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int,
    topk_groups: int,
    normalise: bool,
    scale: float,
    count: int,
    first: int,
    step: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    experts, weights = route(logits, bias, topk, num_groups, topk_groups, normalise, scale)
    return weights, *group_by_expert(experts, count, first, step)


def combine_experts(
    rows: torch.Tensor, groups: ExpertGroups, weights: torch.Tensor, shared: torch.Tensor | None
) -> torch.Tensor:
    _, inverse_permutation, offsets = groups
    local = inverse_permutation < offsets[-1]
    total = torch.zeros(len(weights), rows.shape[1])
    for pair in range(weights.shape[1]):  # a token's experts, best first
        own = local[:, pair, None]
        output = rows[inverse_permutation[:, pair]].float() * weights[:, pair, None]
        total += output.masked_fill_(~own, 0)  # the row of a pair of another rank may hold NaN
    if shared is not None:
        total += shared.float()
    return total.to(rows.dtype)


def combine_norm_quantize(
    rows: torch.Tensor,
    groups: ExpertGroups,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    residual: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    ue8m0: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return rms_norm_quantize(residual, norm_weight, eps, ue8m0, combine_experts(rows, groups, weights, shared))
