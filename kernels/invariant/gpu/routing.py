"""The choice of experts on a Hopper GPU, batch-invariant: both kernels give equal results. Their fallback, torch, might not."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

from ...cuda import routing

P = ParamSpec("P")
R = TypeVar("R")
Choice = Callable[Concatenate[torch.Tensor, torch.Tensor, int, int, P], R]


def _in_kernels(choice: Choice[P, R]) -> Choice[P, R]:
    """Wrap `choice`(logits, bias, topk, num_groups, ...), so that it raises instead of falling back to torch."""

    @wraps(choice)
    def checked(
        logits: torch.Tensor, bias: torch.Tensor, topk: int, num_groups: int, *more: P.args, **options: P.kwargs
    ) -> R:
        sizes = (("experts", logits.shape[1], routing.MAX_EXPERTS), ("groups", num_groups, routing.MAX_GROUPS))
        for name, size, most in (*sizes, ("topk", topk, routing.MAX_TOPK)):
            if size > most:
                raise ValueError(f"{name} is {size}; expected at most {most} in deterministic mode on a GPU")
        return choice(logits, bias, topk, num_groups, *more, **options)

    return checked


route = _in_kernels(routing.route)
route_and_group = _in_kernels(routing.route_and_group)
