"""Lightning indexer scores in plain PyTorch."""

import torch

from ..types import IndexerOperands, PagedIndexerOperands
from .cache_write import split_pages
from .wide import widened

BLOCK_BYTES = 64 << 20  # of [rows, heads, keys] fp32 scores that are held at once
QUERY_BLOCK = 256  # rows that share a range of keys, few enough to compute little beyond the causal triangle


def _scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, k_scale: torch.Tensor | None) -> torch.Tensor:
    """q [T, H, D], k [S, D], weights [T, H] -> fp32 [T, S]."""
    rows, heads, _ = q.shape
    keys = k.float()
    if k.dtype == torch.float32:  # with narrower keys, fp32 is the precision of the kernels, too
        keys, weights = widened(keys, weights)
    out = torch.empty(rows, k.shape[0], dtype=torch.float32, device=q.device)
    step = max(1, BLOCK_BYTES // max(1, 4 * heads * k.shape[0]))
    for start in range(0, rows, step):
        block = q[start : start + step].to(keys.dtype)
        similarity = torch.matmul(block.flatten(0, 1), keys.T).relu_().view(block.shape[0], heads, -1)
        out[start : start + step] = torch.bmm(weights[start : start + step, None], similarity)[:, 0]
    return out if k_scale is None else out.mul_(k_scale)


def indexer_logits(given: IndexerOperands) -> torch.Tensor:
    q, k, weights, starts, ends, k_scale = given
    out = torch.full((q.shape[0], k.shape[0]), float("-inf"), device=q.device)
    for start in range(0, q.shape[0], QUERY_BLOCK):
        rows = slice(start, start + QUERY_BLOCK)
        columns = slice(max(0, int(starts[rows].min())), max(0, int(ends[rows].max())))
        scale = None if k_scale is None else k_scale[columns]
        out[rows, columns] = _scores(q[rows], k[columns], weights[rows], scale)
    positions = torch.arange(k.shape[0], device=k.device)
    return out.masked_fill_((positions < starts[:, None]) | (positions >= ends[:, None]), float("-inf"))


def paged_indexer_logits(given: PagedIndexerOperands) -> torch.Tensor:
    q, cache, weights, block_table, lengths, max_context = given
    batch, new, _, _ = q.shape
    out = torch.full((batch * new, max_context), float("-inf"), device=q.device)
    if cache.is_cuda and cache.dtype != torch.uint8:
        return _all_rows(given, out)
    known: list[int] | None = None
    for b, (row, length) in enumerate(zip(block_table.tolist(), lengths.tolist(), strict=True)):
        pages = row[: -(-min(length, max_context) // cache.shape[1])]
        if pages != known:  # rows that verify drafts have the pages of the row before them
            known, (keys, scales) = pages, _keys(cache, pages)
        for i in range(new):
            visible = min(max(length - new + i + 1, 0), max_context)  # a padding sequence has an empty context
            scale = None if scales is None else scales[:visible]
            out[b * new + i, :visible] = _scores(q[b, i : i + 1], keys[:visible], weights[b, i : i + 1], scale)[0]
    return out


def _all_rows(given: PagedIndexerOperands, out: torch.Tensor) -> torch.Tensor:
    """Write the scores to `out` [B * new, max_context], as many sequences at a time as BLOCK_BYTES allow, to save launches."""
    q, cache, weights, block_table, lengths, columns = given
    batch, new, heads, width = q.shape
    pages = -(-columns // cache.shape[1])
    positions = torch.arange(columns, device=q.device)
    ends = lengths[:, None] - new + 1 + torch.arange(new, device=q.device)
    at_once = max(1, BLOCK_BYTES // max(1, 4 * (width + new * heads) * pages * cache.shape[1]))
    scores = out.view(batch, new, columns)
    for first in range(0, batch, at_once):
        rows = slice(first, first + at_once)
        # After a sequence's pages its table may hold anything.
        table = block_table[rows, :pages].long().clamp(0, cache.shape[0] - 1)
        keys = cache[table].flatten(1, 3)[:, :columns]
        hidden = positions >= ends[rows, :, None]
        keys = keys.float().masked_fill(hidden.all(1)[..., None], 0)
        queries, products = q[rows].float(), weights[rows]
        if cache.dtype == torch.float32:
            queries, keys, products = widened(queries, keys, products)
        similarity = torch.matmul(queries.flatten(1, 2), keys.transpose(1, 2)).relu_()
        summed = torch.matmul(products[:, :, None], similarity.unflatten(1, (new, heads)))[:, :, 0]
        scores[rows] = summed.float().masked_fill_(hidden, float("-inf"))
    return out


def _keys(cache: torch.Tensor, pages: list[int]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the keys [S, D] of these pages, and their scales fp32 [S] if they are FP8."""
    if pages and pages == list(range(pages[0], pages[0] + len(pages))):
        taken = cache[pages[0] : pages[0] + len(pages)]  # no copy
    else:
        taken = cache.index_select(0, torch.tensor(pages, dtype=torch.int64, device=cache.device))
    if cache.dtype != torch.uint8:
        return taken.reshape(-1, cache.shape[-1]), None
    keys, scale_bytes = split_pages(taken)
    scales = scale_bytes.contiguous().view(torch.float32).flatten()
    return keys.reshape(-1, keys.shape[-1]).view(torch.float8_e4m3fn), scales
