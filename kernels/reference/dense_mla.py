"""Dense attention in plain PyTorch: multi-head attention for short prompts, and absorbed decode over whole contexts."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F

from ..types import SplitPlan
from .sparse_mla_prefill import sparse_attention
from .wide import widened

# Query rows per product: small enough to compute little beyond the causal triangle, large enough for products at full speed.
QUERY_BLOCK = 256
WIDE_HEADS = 16  # whose operands are widened to fp64 at a time


def mha_prefill(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    width, dtype = v.shape[-1], q.dtype
    # Zeros widen the narrower of keys and values, and change nothing: torch's fused CPU attention, which is twice as fast, needs
    # equal head dims.
    equal = max(q.shape[-1], width)
    q, k, v = (F.pad(x, (0, equal - x.shape[-1])).float().transpose(0, 1)[None] for x in (q, k, v))
    exact = dtype == torch.float32
    out = []
    for some in zip(*(x.split(WIDE_HEADS if exact and x.is_cuda else x.shape[1], 1) for x in (q, k, v)), strict=True):
        some_q, some_k, some_v = widened(*some) if exact else some
        out.append(_causal(some_q, some_k, some_v, softmax_scale, mask))
    return torch.cat(out, 1)[0, ..., :width].transpose(0, 1).to(dtype)


def _causal(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attention of q [1, H, t, D], the last t of the tokens of k, v [1, H, S, D]; mask [t, S] instead of the causal one."""
    tokens, keys = q.shape[2], k.shape[2]
    positions = torch.arange(keys, device=q.device)
    blocks = []
    for start in range(0, tokens, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, tokens))
        seen = keys - tokens + rows.stop  # later keys are masked for the whole block
        allowed = (
            positions[:seen] <= positions[keys - tokens + start : seen, None] if mask is None else mask[rows, :seen]
        )
        operands = q[:, :, rows], k[:, :, :seen], v[:, :, :seen]
        blocks.append(F.scaled_dot_product_attention(*operands, attn_mask=allowed, scale=softmax_scale))
    return torch.cat(blocks, 2)


def dense_mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    causal: bool,
    plan: SplitPlan | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, new, heads, _ = q.shape
    page_size = cache.shape[1]
    rows = cache.reshape(-1, cache.shape[-1])  # a copy if pages lie apart
    out = torch.zeros(batch, new, heads, value_dim, dtype=q.dtype, device=q.device)
    lse = torch.full((batch, heads, new), float("-inf"), device=q.device)
    for b, length in enumerate(cache_seqlens.tolist()):
        if length == 0:
            continue
        positions = torch.arange(length, device=q.device)
        slots = block_table[b].long()[positions // page_size] * page_size + positions % page_size
        visible = torch.arange(length - new + 1, length + 1, device=q.device).clamp_min(0) if causal else None
        indices = slots.expand(new, -1)
        out[b], _, row_lse = sparse_attention(q[b], rows, indices, softmax_scale, value_dim, visible, None)
        lse[b] = row_lse.T
    return out, lse


def paged_mla_decode_h16(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    sm_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    q = torch.cat((q_nope, q_pe), -1)
    out = torch.zeros_like(q_nope)
    lse = torch.full(q.shape[:2], float("-inf"), device=q.device)
    bounds = kv_indptr.tolist()
    for b, (start, end) in enumerate(pairwise(bounds)):
        if start == end:
            continue
        pages = kv_indices[start:end].long()
        rows = torch.cat((ckv_cache[pages, 0], kpe_cache[pages, 0]), -1)
        everything = torch.arange(end - start, device=q.device)[None]
        out[b : b + 1], _, row_lse = sparse_attention(
            q[b : b + 1], rows, everything, sm_scale, q_nope.shape[-1], None, None
        )
        lse[b] = row_lse[0] / math.log(2)
    return out, lse
