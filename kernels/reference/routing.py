"""Routing tokens to experts in plain PyTorch."""

import torch


def _best(x: torch.Tensor, count: int) -> torch.Tensor:
    """Indices of the largest, [..., count], best first; of equal ones the lowest first, which topk does not promise."""
    return x.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def route(
    logits: torch.Tensor, bias: torch.Tensor, chosen: int, groups: int, kept_groups: int, normalise: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = logits.sigmoid()
    # The bias balances the load: it decides who is chosen, and has no part in the weights.
    choice = scores + bias
    if groups > 1:
        by_group = choice.unflatten(1, (groups, -1))
        group_scores = by_group.topk(min(2, by_group.shape[2]), dim=2).values.sum(2)
        kept = _best(group_scores, kept_groups)
        dropped = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, kept, False)
        choice = by_group.masked_fill(dropped[:, :, None], float("-inf")).flatten(1)
    experts = _best(choice, chosen)
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
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return (order // max(experts.shape[1], 1)).int(), places.view(experts.shape).int(), offsets


def combine_experts(
    rows: torch.Tensor,
    tokens: torch.Tensor,
    places: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
) -> torch.Tensor:
    pairs = rows[places.flatten()]
    here = places < offsets[-1]
    # What the other pairs' rows hold may be NaN, which a weight of zero would not stop.
    pairs.masked_fill_(~here.view(-1, 1), 0)
    total = torch.bmm(weights.masked_fill(~here, 0)[:, None], pairs.view(*places.shape, rows.shape[1]).float())[:, 0]
    if shared is not None:
        total += shared.float()
    return total.to(rows.dtype)
