"""Sparse decode attention over the paged latent cache, in plain PyTorch."""

from collections.abc import Callable

import torch

from ..types import SparseAttention, SplitPlan
from .sparse_mla_prefill import sparse_mla_prefill


def sparse_mla_decode(
    given: SparseAttention,
    plan: SplitPlan | None,
    prefill: Callable[[SparseAttention], tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = sparse_mla_prefill,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, _ = given.q.shape
    out, _, lse = prefill(given.as_prefill())
    return out.view(batch, new, heads, given.value_dim), lse.view(batch, new, heads).transpose(1, 2).contiguous()
