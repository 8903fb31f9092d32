"""Sparse decode attention over the paged latent cache, in plain PyTorch."""

import torch

from ..types import SplitPlan
from .sparse_mla_prefill import sparse_attention


def sparse_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    plan: SplitPlan | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, _ = q.shape
    latents = cache if cache.dtype == torch.uint8 else cache.view(-1, cache.shape[-1])
    lengths = None if topk_length is None else topk_length.repeat_interleave(new)
    out, _, lse = sparse_attention(
        q.flatten(0, 1), latents, indices.flatten(0, 1), softmax_scale, value_dim, lengths, attn_sink
    )
    return out.view(batch, new, heads, value_dim), lse.view(batch, new, heads).transpose(1, 2).contiguous()
