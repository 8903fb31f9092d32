"""The choice of experts on a Hopper GPU, batch-invariant: both kernels give equal results. Their fallback, torch, might not."""

import torch

from ...cuda import routing
from ...types import ExpertChoice


def _check(logits: torch.Tensor, choice: ExpertChoice) -> None:
    """Raise a ValueError where the kernels would fall back to torch."""
    sizes = (("experts", logits.shape[1], routing.MAX_EXPERTS), ("groups", choice.num_groups, routing.MAX_GROUPS))
    for name, size, most in (*sizes, ("topk", choice.topk, routing.MAX_TOPK)):
        if size > most:
            raise ValueError(f"{name} is {size}; expected at most {most} in deterministic mode on a GPU")


def route(logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> tuple[torch.Tensor, torch.Tensor]:
    _check(logits, choice)
    return routing.route(logits, bias, choice)


def route_and_group(
    logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice, count: int, first: int, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    _check(logits, choice)
    return routing.route_and_group(logits, bias, choice, count, first, step)
