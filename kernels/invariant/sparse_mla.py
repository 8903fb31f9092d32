"""Attention over selected latents, batch-invariant: prompts and decodes use the same products of a query with tiles of its keys.

The keys of a query are cut into tiles by their place in its own list, which is in the order of positions. The greatest score is
the same in any order. Sums over the keys of a tile are made by a product of fixed shape, or by halves; the tiles are
added in ascending order. Entries after a query's last key have weight 0 and value 0, and adding them changes no bit.
"""

from functools import partial

import torch

from ..reference import sparse_mla_decode as reference
from ..reference.cache_write import gather_latents
from ..types import SparseAttention
from .products import HEAD_ROWS, aligned, padded, sum_in_halves

TILE = 128  # keys of one product
BLOCK_BYTES = 4 << 20  # of gathered fp32 keys that are held at once, so that they stay in a core's cache


def _attend(
    q: torch.Tensor, keys: torch.Tensor, keep: torch.Tensor, softmax_scale: float, value_dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q fp32 [N, 16, D], keys fp32 [N, K, D], keep bool [N, K] -> out [N, 16, value_dim], max [N, 16], sum of weights [N, 16]."""
    tiles = keys.split(TILE, 1)
    parts = [torch.bmm(q, tile.transpose(1, 2)) for tile in tiles]
    logits = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
    logits.mul_(softmax_scale).masked_fill_(~keep[:, None], float("-inf"))
    highest = logits.amax(-1)
    # Without any key the maximum is -inf. 0 is subtracted there instead, so that exp gives zeros and not NaN.
    weights = logits.sub_(highest.masked_fill(highest.isneginf(), 0.0)[..., None]).exp_()
    shares = [aligned(part) for part in weights.split(TILE, 2)]
    out, total = torch.bmm(shares[0], tiles[0][..., :value_dim]), sum_in_halves(shares[0], 2)
    for share, tile in zip(shares[1:], tiles[1:], strict=True):
        out += torch.bmm(share, tile[..., :value_dim])
        total += sum_in_halves(share, 2)
    return out / total.masked_fill(total == 0, 1.0)[..., None], highest, total


def sparse_mla_prefill(given: SparseAttention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, latents, indices, softmax_scale, value_dim, lengths, attn_sink = given
    if latents.dtype != torch.uint8:
        latents = latents[:, 0]
    indices = indices[:, 0]
    rows, heads, width = q.shape
    capacity = latents.shape[0] * (latents.shape[1] if latents.dtype == torch.uint8 else 1)
    valid = (indices >= 0) & (indices < capacity)
    if lengths is not None:
        valid &= torch.arange(indices.shape[1]) < lengths[:, None]
    valid = padded(valid, 1, TILE)
    safe = torch.where(valid, padded(indices, 1, TILE), 0).long()
    out = torch.empty(rows, heads, value_dim, dtype=q.dtype)
    highest = torch.empty(rows, heads)
    lse = torch.empty_like(highest)
    step = max(1, BLOCK_BYTES // max(1, 4 * width * safe.shape[1]))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        keep = valid[block]
        keys = _keys(latents, safe[block], keep, value_dim)
        for head in range(0, heads, HEAD_ROWS):
            some = slice(head, min(head + HEAD_ROWS, heads))
            queries = aligned(padded(q[block, some].float(), 1, HEAD_ROWS))
            results = _attend(queries, keys, keep, softmax_scale, value_dim)
            result, top, total = (x[:, : some.stop - head] for x in results)
            highest[block, some], lse[block, some] = top, top + total.log()
            if attn_sink is not None:
                share = 1 / (1 + (attn_sink[some] - lse[block, some]).exp())
                result = result * share.nan_to_num(0.0)[..., None]
            out[block, some] = result.to(q.dtype)
    return out, highest, lse


def _keys(latents: torch.Tensor, slots: torch.Tensor, keep: torch.Tensor, value_dim: int) -> torch.Tensor:
    """Read the keys in slots int64 [N, K] -> fp32 [N, K, D]; zeros or any finite values where `keep` is false."""
    longest = keep.sum(1).argmax()
    if len(slots) > 1 and bool(((slots == slots[longest]) | ~keep).all()):
        # The queries begin with the same keys, as at the start of a prompt. One copy serves them all: what a query does not keep
        # has weight 0, which hides every value but NaN and infinity.
        keys = _gather(latents, slots[longest, None], keep[longest, None], value_dim)
        if all(bool(each.isfinite()) for each in torch.aminmax(keys)):
            return keys.expand(slots.shape[0], -1, -1)
    return _gather(latents, slots, keep, value_dim)


def _gather(latents: torch.Tensor, slots: torch.Tensor, keep: torch.Tensor, value_dim: int) -> torch.Tensor:
    """Read the keys in slots int64 [N, K] -> fp32 [N, K, D]; zeros where `keep` is false, since NaN may lie there."""
    if latents.dtype == torch.uint8:
        keys = gather_latents(latents, slots, value_dim, torch.float32)
    else:
        keys = latents.index_select(0, slots.flatten()).view(*slots.shape, -1).float()
    keys.flatten(0, 1).index_fill_(0, (~keep).flatten().nonzero()[:, 0], 0.0)
    return keys


sparse_mla_decode = partial(reference.sparse_mla_decode, prefill=sparse_mla_prefill)
