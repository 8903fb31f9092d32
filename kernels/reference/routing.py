"""MoE routing in plain PyTorch."""

import torch

from ..types import ExpertChoice, ExpertOutputs
from .quantize import rms_norm_quantize


def _largest(x: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices of the `count` largest elements [..., count], largest first; equal ones by index, unlike torch.topk."""
    return x.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def route(logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> tuple[torch.Tensor, torch.Tensor]:
    return choose_experts(logits.sigmoid(), bias, choice)


def choose_experts(scores: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose experts as `route` does, from scores = sigmoid(logits)."""
    topk, num_groups, topk_groups, normalise, scale = choice
    # The bias balances the load. It takes part in the choice of experts, but not in their weights.
    biased = scores + bias
    if num_groups > 1:
        by_group = biased.unflatten(1, (num_groups, -1))
        group_scores = by_group.topk(min(2, by_group.shape[2]), dim=2).values.sum(2)
        kept = _largest(group_scores, topk_groups)
        dropped = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, kept, False)
        biased = by_group.masked_fill(dropped[:, :, None], float("-inf")).flatten(1)
    experts = _largest(biased, topk)
    weights = scores.gather(1, experts)
    if normalise:
        weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
    return experts, weights * scale


def group_by_expert(
    experts: torch.Tensor, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    local = experts.flatten() - first
    local = torch.where((local < 0) | (local % step != 0) | (local >= count * step), count, local // step)
    sorted_experts, order = local.sort(stable=True)
    edges = torch.arange(count + 1, device=experts.device, dtype=sorted_experts.dtype)
    offsets = torch.searchsorted(sorted_experts, edges).int()
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return (order // max(experts.shape[1], 1)).int(), inverse.view(experts.shape).int(), offsets


def route_and_group(
    logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    experts, weights = route(logits, bias, choice)
    return weights, *group_by_expert(experts, count, first, step)


def combine_experts(outputs: ExpertOutputs) -> torch.Tensor:
    rows, (_, inverse_permutation, offsets), weights, shared = outputs
    pairs = rows[inverse_permutation.flatten()]
    local = inverse_permutation < offsets[-1]
    # The rows of the other pairs may hold NaN, which a weight of zero would not remove.
    pairs.masked_fill_(~local.view(-1, 1), 0)
    by_token = pairs.view(*inverse_permutation.shape, rows.shape[1]).float()
    total = torch.bmm(weights.masked_fill(~local, 0)[:, None], by_token)[:, 0]
    if shared is not None:
        total += shared.float()
    return total.to(rows.dtype)


def combine_norm_quantize(
    outputs: ExpertOutputs, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, ue8m0: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return rms_norm_quantize(residual, norm_weight, eps, ue8m0, combine_experts(outputs))
