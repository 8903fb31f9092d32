"""Sparse prefill on Hopper, over bf16 rows or the paged FP8 cache."""

import math

import torch

from ..alignment import check_aligned
from ..build import load
from .split_plan import check_widths


def sparse_mla_prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, heads, width = q.shape
    check_widths(width, value_dim)
    check_aligned(q=q, kv=kv)
    out = torch.empty(tokens, heads, value_dim, dtype=q.dtype, device=q.device)
    max_logits = torch.empty(tokens, heads, dtype=torch.float32, device=q.device)
    lse = torch.empty_like(max_logits)
    if kv.dtype == torch.uint8:
        load("sparse_decode").sparse_decode(
            q,
            kv,
            indices[:, 0],
            topk_length,
            attn_sink,
            out,
            max_logits,
            lse,
            softmax_scale,
            math.log(2),
            1,
            None,
            None,
            None,
            None,
            False,
        )
    else:
        load("sparse_prefill").sparse_prefill_rows(
            q,
            kv[:, 0],
            indices[:, 0],
            topk_length,
            attn_sink,
            out,
            max_logits,
            lse,
            softmax_scale,
        )
    return out, max_logits, lse
