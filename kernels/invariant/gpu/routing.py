"""The choice of experts on a Hopper GPU, batch-invariant: both kernels give equal results. Their fallback, torch, might not."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

from ...cuda import routing
from ...types import ExpertChoice

P = ParamSpec("P")
R = TypeVar("R")
Choice = Callable[Concatenate[torch.Tensor, torch.Tensor, ExpertChoice, P], R]


def _in_kernels(choice: Choice[P, R]) -> Choice[P, R]:
    """Wrap `choice`(logits, bias, options, ...), so that it raises instead of falling back to torch."""

    @wraps(choice)
    def checked(logits: torch.Tensor, bias: torch.Tensor, options: ExpertChoice, *more: P.args, **named: P.kwargs) -> R:
        sizes = (("experts", logits.shape[1], routing.MAX_EXPERTS), ("groups", options.num_groups, routing.MAX_GROUPS))
        for name, size, most in (*sizes, ("topk", options.topk, routing.MAX_TOPK)):
            if size > most:
                raise ValueError(f"{name} is {size}; expected at most {most} in deterministic mode on a GPU")
        return choice(logits, bias, options, *more, **named)

    return checked


route = _in_kernels(routing.route)
route_and_group = _in_kernels(routing.route_and_group)
