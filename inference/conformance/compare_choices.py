"""Choices by score, which two right implementations may make differently where scores are equal within rounding."""

from typing import Any

import torch

SCORES_OF = {"selection": "index_scores", "router_choice": "router_scores"}  # by what a choice is made
# How far below the best of the others a member may score, relative to the row's root mean square: scores may be stored in bf16.
OWN_MARGIN = 5e-3


def as_masks(*sets: torch.Tensor) -> list[torch.Tensor]:
    """Sets of ids int [T, K], -1 for none, of several traces -> bool [T, ids] each, of the tokens that all have."""
    count = min(map(len, sets))
    flat = [each[:count].long().view(count, -1) for each in sets]
    width = max(int(max(each.max() for each in flat)) + 1, 1)
    masks = []
    for each in flat:
        inside = torch.where(each < 0, width, each)
        masks.append(torch.zeros(count, width + 1, dtype=torch.bool).scatter(1, inside, True)[:, :width])
    return masks


def follows(
    chosen: torch.Tensor, right: torch.Tensor, scores: torch.Tensor, margin: float, config: dict[str, Any]
) -> torch.Tensor:
    """bool [T]: rows whose chosen ids [T, ids] are as many as the right ones and have the largest scores [T, N], within the margin.

    config: if it has groups, only those of the best groups can be chosen.
    """
    chosen = torch.nn.functional.pad(chosen, (0, scores.shape[1] - chosen.shape[1]))
    known = scores.isfinite()
    size = margin * torch.where(known, scores, 0.0).norm(dim=1) / known.sum(1).clamp_min(1).sqrt()
    lowest = torch.where(chosen, scores, torch.inf).amin(1)
    eligible, undecided = _in_groups(scores, size, config)
    highest = torch.where(known & eligible & ~chosen, scores, -torch.inf).amax(1)
    fits = (lowest >= highest - size) & ~(chosen & ~known).any(1) & ~(chosen & ~eligible).any(1)
    return (fits | undecided) & (chosen.sum(1) == right.sum(1))


def _in_groups(scores: torch.Tensor, size: torch.Tensor, config: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """bool [T, N]: what the best groups have; bool [T]: rows in which a kept and a dropped group are equal within `size`."""
    groups, kept = config.get("n_group", 1), config.get("topk_group", 1)
    if groups == 1 or kept >= groups or scores.shape[1] % groups:
        return torch.ones_like(scores, dtype=torch.bool), torch.zeros(len(scores), dtype=torch.bool)
    by_group = scores.unflatten(1, (groups, -1))
    best = by_group.topk(min(2, by_group.shape[2]), 2).values.sum(2)
    ordered = best.sort(1, descending=True)
    inside = torch.zeros_like(best, dtype=torch.bool).scatter(1, ordered.indices[:, :kept], True)
    undecided = ordered.values[:, kept - 1] - ordered.values[:, kept] <= 2 * size
    return inside[..., None].expand_as(by_group).flatten(1), undecided
