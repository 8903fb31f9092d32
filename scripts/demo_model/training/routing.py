"""Which experts a token goes to: V3's sigmoid scores, the best groups first, and a bias that balances the load."""

import torch
import torch.nn.functional as F

from .shape import Shape


def largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Mask of the k largest along the last dimension; of equal ones the first. Compiled, it is one pass, unlike torch.topk."""
    one, other = values[..., :, None], values[..., None, :]
    before = torch.ones(values.shape[-1], values.shape[-1], dtype=torch.bool, device=values.device).tril(-1)
    return ((other > one) | ((other == one) & before)).sum(-1) < k


def route(h, router, bias, shape: Shape):
    """h [N, D] → weights of all experts [N, E], zero where a token is not routed, and the load of each expert [E]."""
    scores = torch.sigmoid(F.linear(h.float(), router))
    groups = (scores + bias).view(-1, shape.groups, shape.experts // shape.groups)
    best = torch.where(largest(groups, 2), groups, 0.0).sum(-1)
    allowed = groups.masked_fill(~largest(best, shape.kept_groups)[..., None], float("-inf")).flatten(1)
    chosen = largest(allowed, shape.experts_per_token).float()
    weights = scores * chosen
    return weights / (weights.sum(-1, keepdim=True) + 1e-20) * shape.routed_scaling, chosen.mean(0)
