"""Which experts a token goes to, where its rows stand among those of each expert, and how their results are put together."""

from typing import NamedTuple

import torch

from .checks import FLOATS, check_tensor
from .registry import Preference, choose


class ExpertGroups(NamedTuple):
    """Where each of the T * k (token, choice) pairs stands once sorted by expert. Made on the device, without waiting for it."""

    sorted_token_ids: torch.Tensor  # int32 [T * k]: the token of each sorted row
    inverse_permutation: torch.Tensor  # int32 [T, k]: the sorted row of each pair
    offsets: torch.Tensor  # int32 [E + 1]: expert e owns sorted rows offsets[e] to offsets[e + 1]


def route(
    logits: torch.Tensor,
    bias: torch.Tensor,
    chosen: int,
    groups: int = 1,
    kept_groups: int = 1,
    normalise: bool = True,
    scale: float = 1.0,
    *,
    backend: str | Preference = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits fp32 [T, E], bias fp32 [E] -> experts int64 [T, k] and their weights fp32 [T, k], k = `chosen`, best first.

    s = sigmoid(logits). Of `groups` equal groups of neighbouring experts, those `kept_groups` are kept whose two largest s + bias
    have the largest sum; of their experts, the k largest s + bias. Of equal ones the lowest number wins, NaN is the largest.
    On a GPU bias, a parameter, is read early: it must not be the work of the kernel launched right before.
    weight = scale * s, divided by (the sum of the k + 1e-20) if `normalise`. Source: DeepSeek-V3 report, section 2.1.2.
    """
    check_tensor("logits", logits, (None, None), torch.float32)
    experts = logits.shape[1]
    check_tensor("bias", bias, (experts,), torch.float32, logits.device)
    if groups < 1 or experts % groups:
        raise ValueError(f"groups is {groups}, which does not divide {experts} experts")
    if not 1 <= kept_groups <= groups:
        raise ValueError(f"kept_groups is {kept_groups}, expected 1 to {groups}")
    if not 1 <= chosen <= experts:
        raise ValueError(f"chosen is {chosen}, expected 1 to {experts}")
    body = choose("route", logits, backend)
    result: tuple[torch.Tensor, torch.Tensor] = body(logits, bias, chosen, groups, kept_groups, normalise, scale)
    return result


def group_by_expert(
    experts: torch.Tensor, count: int, first: int = 0, step: int = 1, *, backend: str | Preference = "auto"
) -> ExpertGroups:
    """Sort the pairs of `experts` (int64 [T, k]) by expert, those of one expert in their order.

    `count` experts are here, every `step`-th from number `first` on; pairs of others come last, past offsets[count].
    """
    check_tensor("experts", experts, (None, None), torch.int64)
    if count < 1:
        raise ValueError(f"count is {count}, expected at least 1")
    if step < 1:
        raise ValueError(f"step is {step}, expected at least 1")
    return ExpertGroups(*choose("group_by_expert", experts, backend)(experts, count, first, step))


def combine_experts(
    rows: torch.Tensor,
    groups: ExpertGroups,
    weights: torch.Tensor,
    shared: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """out[t] = sum over its k pairs of weights[t, i] * rows[groups.inverse_permutation[t, i]], plus shared[t] -> [T, D].

    The sum is made in fp32 and rounded once. rows [T * k, D] are sorted by expert; those past the last expert's are not read and
    count as zero. weights fp32 [T, k]; shared [T, D] of rows' dtype, or None.
    """
    check_tensor("groups.inverse_permutation", groups.inverse_permutation, (None, None), torch.int32, rows.device)
    check_tensor("groups.offsets", groups.offsets, (None,), torch.int32, rows.device)
    tokens, chosen = groups.inverse_permutation.shape
    check_tensor("rows", rows, (tokens * chosen, None), FLOATS)
    check_tensor("weights", weights, (tokens, chosen), torch.float32, rows.device)
    if shared is not None:
        check_tensor("shared", shared, (tokens, rows.shape[1]), rows.dtype, rows.device)
    result: torch.Tensor = choose("combine_experts", rows, backend)(rows, *groups, weights, shared)
    return result
