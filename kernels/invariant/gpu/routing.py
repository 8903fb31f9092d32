"""The choice of experts on a Hopper GPU, batch-invariant: both kernels choose and weigh alike; torch, their way out, might not."""

import torch

from ...cuda import routing

Groups = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _check(experts: int, groups: int, topk: int) -> None:
    sizes = (("experts", experts, routing.MAX_EXPERTS), ("groups", groups, routing.MAX_GROUPS))
    for name, size, most in (*sizes, ("topk", topk, routing.MAX_TOPK)):
        if size > most:
            raise ValueError(f"{name} is {size}; expected at most {most} in deterministic mode on a GPU")


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    topk: int,
    num_groups: int,
    topk_groups: int,
    normalise: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(logits.shape[1], num_groups, topk)
    return routing.route(logits, bias, topk, num_groups, topk_groups, normalise, scale)


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
) -> Groups:
    _check(logits.shape[1], num_groups, topk)
    return routing.route_and_group(logits, bias, topk, num_groups, topk_groups, normalise, scale, count, first, step)
