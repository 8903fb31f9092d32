"""MoE routing, batch-invariant: sigmoid from steps that are rounded alike everywhere, experts' outputs summed in their order."""

import torch

from ..reference.quantize import rms_norm_quantize
from ..reference.routing import choose_experts, group_by_expert
from ..types import ExpertChoice, ExpertOutputs
from .quantize import sigmoid


def route(logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> tuple[torch.Tensor, torch.Tensor]:
    return choose_experts(sigmoid(logits), bias, choice)


def route_and_group(
    logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    experts, weights = route(logits, bias, choice)
    return weights, *group_by_expert(experts, count, first, step)


def combine_experts(outputs: ExpertOutputs) -> torch.Tensor:
    rows, (_, inverse_permutation, offsets), weights, shared = outputs
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
    outputs: ExpertOutputs, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, ue8m0: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return rms_norm_quantize(residual, norm_weight, eps, ue8m0, combine_experts(outputs))
