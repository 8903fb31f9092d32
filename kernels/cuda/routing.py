"""Routing on the GPU: one kernel each for the choice, the sorting and the sum. What does not fit them runs in the reference."""

import torch

from ..build import load
from ..reference import routing as reference

EXPERTS, GROUPS, CHOSEN = 1023, 32, 32  # at most


def route(
    logits: torch.Tensor, bias: torch.Tensor, chosen: int, groups: int, kept_groups: int, normalise: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, count = logits.shape
    if count > EXPERTS or groups > GROUPS or chosen > CHOSEN:
        return reference.route(logits, bias, chosen, groups, kept_groups, normalise, scale)
    experts = torch.empty(tokens, chosen, dtype=torch.int64, device=logits.device)
    weights = torch.empty(tokens, chosen, dtype=torch.float32, device=logits.device)
    if tokens:
        load("routing").route(logits, bias, experts, weights, groups, kept_groups, normalise, scale)
    return experts, weights


def group_by_expert(
    experts: torch.Tensor, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if count > EXPERTS or not experts.numel() or not experts.is_contiguous():
        return reference.group_by_expert(experts, count, first, step)
    tokens = torch.empty(experts.numel(), dtype=torch.int32, device=experts.device)
    places = torch.empty(experts.shape, dtype=torch.int32, device=experts.device)
    offsets = torch.empty(count + 1, dtype=torch.int32, device=experts.device)
    load("routing").group_by_expert(experts, tokens, places, offsets, first, step)
    return tokens, places, offsets


def combine_experts(
    rows: torch.Tensor,
    tokens: torch.Tensor,
    places: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
) -> torch.Tensor:
    out = torch.empty(places.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    if out.numel():
        load("routing").combine_experts(rows, places.contiguous(), offsets, weights.contiguous(), shared, out)
    return out
