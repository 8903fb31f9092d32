"""Routing and experts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from deepseek_v32.kernels.types import ExpertChoice

from .bug import ALL, HTTP, TRACE, Bug
from .patching import replaced

ROUTE = "kernels.reference.routing.route"
BOTH = frozenset({TRACE, HTTP})


def routed(change: Any) -> AbstractContextManager[None]:
    """Routing by change(route, logits, bias, choice)."""
    return replaced(ROUTE, lambda route: lambda *arguments: change(route, *arguments))


def bias_in_weights() -> AbstractContextManager[None]:
    def change(route: Any, logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> Any:
        experts, _ = route(logits, bias, choice)
        weights = (logits.sigmoid() + bias).gather(1, experts)
        return experts, weights / (weights.sum(1, keepdim=True) + 1e-20) * choice.scale

    return routed(change)


def groups_ignored() -> AbstractContextManager[None]:
    return routed(lambda route, logits, bias, choice: route(logits, bias, choice._replace(num_groups=1, topk_groups=1)))


def groups_by_maximum() -> AbstractContextManager[None]:
    """A group is as good as its best expert, not as its two best."""

    def change(route: Any, logits: torch.Tensor, bias: torch.Tensor, choice: ExpertChoice) -> Any:
        groups = choice.num_groups
        scores = (logits.sigmoid() + bias).unflatten(1, (groups, -1))
        best = scores.amax(2).topk(choice.topk_groups).indices
        dropped = torch.ones(scores.shape[:2], dtype=torch.bool).scatter(1, best, False)
        hidden = torch.where(dropped[..., None], -torch.inf, bias.expand_as(logits).unflatten(1, (groups, -1))).flatten(
            1
        )
        return route(logits, hidden, choice._replace(num_groups=1, topk_groups=1))

    return routed(change)


def bias_ignored() -> AbstractContextManager[None]:
    return routed(lambda route, logits, bias, choice: route(logits, torch.zeros_like(bias), choice))


def scaling(power: int) -> AbstractContextManager[None]:
    return routed(lambda route, logits, bias, choice: route(logits, bias, choice._replace(scale=choice.scale**power)))


def scaling_missing() -> AbstractContextManager[None]:
    return scaling(0)


def scaling_twice() -> AbstractContextManager[None]:
    return scaling(2)


def shared(factor: Callable[[float], float]) -> AbstractContextManager[None]:
    """The shared expert's output times factor(routed_scaling_factor)."""

    def make(forward: Any) -> Any:
        def patched(self: Any, *arguments: Any) -> Any:
            outputs = forward(self, *arguments)
            return outputs._replace(shared=outputs.shared * factor(self.gate.config.routed_scaling_factor))

        return patched

    return replaced("model.moe.MixtureOfExperts._outputs", make)


def shared_missing() -> AbstractContextManager[None]:
    return shared(lambda scaling: 0.0)


def shared_scaled() -> AbstractContextManager[None]:
    """Divided by routed_scaling_factor although nothing multiplies it later."""
    return shared(lambda scaling: 1 / scaling)


BUGS = (
    Bug("router-bias-in-weights", BOTH, ALL, "router_weights", bias_in_weights),
    Bug("router-bias-ignored", BOTH, ALL, "router_choice", bias_ignored),
    Bug("router-groups-ignored", BOTH, ALL, "router_choice", groups_ignored),
    Bug("router-groups-by-maximum", BOTH, ALL, "router_choice", groups_by_maximum),
    Bug("routed-scaling-missing", BOTH, ALL, "router_weights", scaling_missing),
    Bug("routed-scaling-twice", BOTH, ALL, "router_weights", scaling_twice),
    Bug("shared-expert-missing", BOTH, ALL, "mlp_output", shared_missing),
    Bug("shared-expert-scaled", BOTH, ALL, "mlp_output", shared_scaled),
)
