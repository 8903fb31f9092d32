"""Sparse prefill on Hopper."""

import torch

from ..build import load


def sparse_mla_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, heads, _ = q.shape
    out = torch.empty(tokens, heads, value_dim, dtype=q.dtype, device=q.device)
    max_logits = torch.empty(tokens, heads, dtype=torch.float32, device=q.device)
    lse = torch.empty_like(max_logits)
    load("sparse_prefill").sparse_prefill_rows(
        q, kv[:, 0], indices[:, 0], topk_length, attn_sink, out, max_logits, lse, softmax_scale, heads > 64
    )
    return out, max_logits, lse
