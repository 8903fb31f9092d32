"""Sparse prefill in TileLang: mla_pipelined.py over each query's selection."""

import torch

from ..alignment import check_aligned
from ..types import SparseAttention
from .cache_read import gather_latents
from .mla_pipelined import LATENT, ROPE, attend


def sparse_mla_prefill(given: SparseAttention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, kv, indices, softmax_scale, value_dim, topk_length, attn_sink = given
    if (value_dim, q.shape[2]) != (LATENT, LATENT + ROPE):
        raise ValueError(
            f"value_dim is {value_dim} of {q.shape[2]} dims; expected {LATENT} of {LATENT + ROPE} for backend 'tile'"
        )
    check_aligned(q=q, kv=kv)
    rows, columns = (kv[:, 0], indices[:, 0]) if kv.dtype != torch.uint8 else _dequantized(kv, indices[:, 0])
    results, lengths, sink = prepare(q, topk_length, attn_sink)
    compiled = attend(topk_length is not None, attn_sink is not None)
    compiled(q, rows, columns, lengths, sink, *results, softmax_scale)
    return results


def _dequantized(cache: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (bf16 rows of a paged FP8 cache, indices into them). Converts all slots, or one row per index if those are fewer."""
    capacity = cache.shape[0] * cache.shape[1]
    if capacity <= indices.numel():
        slots = torch.arange(capacity, device=cache.device)
    else:
        exists = (indices >= 0) & (indices < capacity)
        slots = torch.where(exists, indices, 0).flatten().long()
        numbers = torch.arange(indices.numel(), dtype=torch.int32, device=cache.device).view_as(indices)
        indices = torch.where(exists, numbers, -1)
    return gather_latents(cache, slots, LATENT, torch.bfloat16), indices


def prepare(
    q: torch.Tensor, topk_length: torch.Tensor | None, attn_sink: torch.Tensor | None
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Return ((out, max_logits, lse) to be written, lengths, sink). Missing lengths and sink become tensors that are not read."""
    tokens, heads, _ = q.shape
    out = q.new_empty(tokens, heads, LATENT)
    max_logits = q.new_empty(tokens, heads, dtype=torch.float32)
    lengths = q.new_empty(tokens, dtype=torch.int32) if topk_length is None else topk_length
    sink = max_logits[0] if attn_sink is None else attn_sink
    return (out, max_logits, torch.empty_like(max_logits)), lengths, sink
