"""Lightning indexer scores, batch-invariant: one fixed product of a query's heads and a tile of keys, then the heads by halves."""

import torch
import torch.nn.functional as F

from ..reference.cache_write import split_pages
from ..types import IndexerOperands, PagedIndexerOperands
from .products import HEAD_ROWS, aligned, padded, sum_in_halves

TILE = 256  # keys of one product; a key's score does not depend on its place in the tile
QUERY_BLOCK = 128  # queries at a time: their products with a tile take 2 MiB with 16 heads


def _scores(
    q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, k_scale: torch.Tensor | None, keys: int
) -> torch.Tensor:
    """q [T, H, D], k [S, D], weights [T, H] -> fp32 [T, keys], the scores of the first `keys` of the S keys."""
    rows, heads, _ = q.shape
    height = max(HEAD_ROWS, 1 << (heads - 1).bit_length())  # a power of two; heads that are not there have weight 0
    q = aligned(F.pad(q.float(), (0, 0, 0, height - heads)))
    weights = F.pad(weights, (0, height - heads))[:, :, None]
    tiles = aligned(padded(k.float(), 0, TILE)).unflatten(0, (-1, TILE)).transpose(1, 2)
    if rows < len(tiles):  # by query or by tile: the same products, in fewer calls
        parts = [_by_heads(q[i].expand(len(tiles), -1, -1), tiles, weights[i]).view(1, -1) for i in range(rows)]
        scores = torch.cat(parts)[:, :keys]
    else:
        scores = torch.cat([_by_heads(q, tile.expand(rows, -1, -1), weights) for tile in tiles], 1)[:, :keys]
    return scores if k_scale is None else scores * k_scale[:keys]


def _by_heads(q: torch.Tensor, tiles: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """q [N, H, D], tiles [N, D, TILE], weights [N or 1, H, 1] -> weighted sums of the heads' scores, [N, TILE]."""
    return sum_in_halves(torch.bmm(q, tiles).relu_().mul_(weights), 1)


def indexer_logits(given: IndexerOperands) -> torch.Tensor:
    q, k, weights, starts, ends, k_scale = given
    out = torch.full((q.shape[0], k.shape[0]), float("-inf"))
    for first in range(0, q.shape[0], QUERY_BLOCK):
        rows = slice(first, first + QUERY_BLOCK)
        start, end = max(0, int(starts[rows].min())), min(int(ends[rows].max()), k.shape[0])
        if end > start:
            scale = None if k_scale is None else k_scale[start:end]
            out[rows, start:end] = _scores(q[rows], k[start:end], weights[rows], scale, end - start)
    positions = torch.arange(k.shape[0])
    return out.masked_fill_((positions < starts[:, None]) | (positions >= ends[:, None]), float("-inf"))


def paged_indexer_logits(given: PagedIndexerOperands) -> torch.Tensor:
    q, cache, weights, block_table, lengths, max_context = given
    batch, new, _, width = q.shape
    page_size = cache.shape[1]
    out = torch.full((batch * new, max_context), float("-inf"))
    for b, length in enumerate(lengths.tolist()):
        # Whole tiles, so that the keys need not be copied once more. Entries of the pages after the context are scored and dropped.
        pages = padded(block_table[b, : -(-length // page_size)].long(), 0, max(TILE // page_size, 1))
        k_scale = None
        if cache.dtype == torch.uint8:
            keys, scale_bytes = split_pages(cache.index_select(0, pages))
            k = keys.reshape(-1, width).view(torch.float8_e4m3fn)
            k_scale = scale_bytes.contiguous().view(torch.float32).flatten()
        else:
            k = cache.index_select(0, pages).view(-1, width)
        for i in range(new):
            visible = max(length - new + i + 1, 0)  # a padding sequence has an empty context
            if visible:
                row = b * new + i
                out[row, :visible] = _scores(q[b, i : i + 1], k, weights[b, i : i + 1], k_scale, visible)[0]
    return out
