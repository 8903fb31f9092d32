"""Attention over selected latents, in plain PyTorch; also the core of sparse decode."""

import torch

from ..types import SparseAttention
from .cache_write import gather_latents
from .wide import widened

BLOCK_BYTES = 64 << 20  # of gathered fp32 keys that are held at once


def sparse_attention(
    q: torch.Tensor,
    latents: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    value_dim: int,
    lengths: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [N, H, D], latents (rows [S, D], or a uint8 cache), indices [N, K] -> out [N, H, value_dim], max [N, H], lse [N, H]."""
    rows, heads, width = q.shape
    capacity = latents.shape[0] * (latents.shape[1] if latents.dtype == torch.uint8 else 1)
    valid = (indices >= 0) & (indices < capacity)
    if lengths is not None:
        valid &= torch.arange(indices.shape[1], device=q.device) < lengths[:, None]
    safe = torch.where(valid, indices, 0).long()
    out = torch.empty(rows, heads, value_dim, dtype=q.dtype, device=q.device)
    highest = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    lse = torch.empty_like(highest)
    step = max(1, BLOCK_BYTES // max(1, 4 * width * indices.shape[1]))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        keep = valid[block]
        if latents.dtype == torch.uint8:
            keys = gather_latents(latents, safe[block], value_dim, torch.float32)
        else:
            keys = latents.index_select(0, safe[block].flatten()).view(*keep.shape, width).float()
        # The memory of an invalid slot may hold NaN, so its keys are zeroed. Only those: a mask over all keys costs a tenth of
        # a step.
        keys.view(-1, width).index_fill_(0, (~keep).flatten().nonzero()[:, 0], 0.0)
        queries = q[block].float()
        if q.dtype == torch.float32:
            queries, keys = widened(queries, keys)
        logits = torch.bmm(queries, keys.transpose(1, 2)).mul_(softmax_scale)
        logits.masked_fill_(~keep[:, None], float("-inf"))
        highest[block] = logits.amax(-1)
        sums = logits.logsumexp(-1)
        lse[block] = sums
        # A row without keys has lse -inf. 0 is subtracted there instead, so that exp gives zeros and not NaN.
        weights = (logits - torch.where(sums.isneginf(), 0.0, sums)[..., None]).exp_()
        result = torch.bmm(weights, keys[..., :value_dim])
        if attn_sink is not None:
            result *= torch.sigmoid(lse[block] - attn_sink).nan_to_num(0.0)[..., None]
        out[block] = result.to(q.dtype)
    return out, highest, lse


def sparse_mla_prefill(given: SparseAttention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    latents = given.latents if given.latents.dtype == torch.uint8 else given.latents[:, 0]
    return sparse_attention(given.q, latents, given.indices[:, 0], *given[3:])
