"""Attention of a layer, dense and absorbed over selected rows, and the indexer's divergence from it."""

import torch
import torch.nn.functional as F

from .shape import HEADS, LATENT, NOPE, VALUE
from .sparse_attention import sparse_attention


def dense_attention(q, k, v, batch, scale):
    q, k, v = (t.unflatten(0, (batch, -1)).transpose(1, 2) for t in (q, k, v))
    if q.is_cuda:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # cuDNN is the only backend with 192/128 heads at full speed: 504 TFLOP/s against 216 for padded flash.
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return out.transpose(1, 2).flatten(0, 1).flatten(1)


def absorbed_attention(layer, q, latent, k_rope, index, scale):
    weight = layer.kv_b.to(q.dtype).view(HEADS, NOPE + VALUE, LATENT)
    absorbed = torch.einsum("nhd,hdc->nhc", q[..., :NOPE], weight[:, :NOPE])
    out = sparse_attention(torch.cat((absorbed, q[..., NOPE:]), -1), torch.cat((latent, k_rope), -1), index, scale)
    return torch.einsum("nhc,hdc->nhd", out, weight[:, NOPE:]).flatten(1)


def _causal(sample, length):
    return torch.arange(length, device=sample.device) <= sample[..., None]  # [B, R, T]


def attention_rows(q, k, sample, batch, scale, index):
    """Attention of the sampled rows, averaged over heads, [B, R, T]; only over selected keys if `index` is given."""
    length = q.shape[0] // batch
    rows = torch.gather(
        q.view(batch, length, -1), 1, sample[..., None].expand(-1, -1, q.shape[1] * q.shape[2])
    ).unflatten(-1, q.shape[1:])
    allowed = _causal(sample, length)
    if index is not None:
        flat = (sample + torch.arange(batch, device=q.device)[:, None] * length).flatten()
        local = (
            index[flat].view(*sample.shape, -1).long() - (torch.arange(batch, device=q.device) * length)[:, None, None]
        )
        chosen = torch.zeros(*sample.shape, length + 1, dtype=torch.bool, device=q.device)
        chosen.scatter_(2, torch.where(local < 0, length, local), True)
        allowed = allowed & chosen[..., :length]
    total = torch.zeros(allowed.shape, device=q.device)
    keys = k.unflatten(0, (batch, -1))
    for head in range(q.shape[1]):  # head by head: 16 heads of [R, 16K] rows at once would take gigabytes
        logits = torch.einsum("brd,btd->brt", rows[:, :, head], keys[:, :, head]).float() * scale
        total += logits.masked_fill_(~allowed, float("-inf")).softmax(-1)
    return total / q.shape[1], allowed


def indexer_divergence(iq, ik, weights, sample, batch, target):
    """KL(attention ‖ softmax of index scores), mean over the sampled rows."""
    probability, allowed = target
    length = iq.shape[0] // batch
    flat = (sample + torch.arange(batch, device=iq.device)[:, None] * length).flatten()
    q, w = iq[flat].view(*sample.shape, *iq.shape[1:]), weights[flat].view(*sample.shape, -1)
    keys = ik.view(batch, length, -1)
    dots = torch.relu(torch.einsum("brhd,btd->bhrt", q, keys))
    scores = torch.einsum("bhrt,brh->brt", dots, w.to(dots.dtype)).float()
    log_q = scores.masked_fill(~allowed, float("-inf")).log_softmax(-1)
    terms = torch.where(
        allowed, probability * (probability.clamp_min(1e-9).log() - log_q.masked_fill(~allowed, 0.0)), 0.0
    )
    return terms.sum(-1).mean()
