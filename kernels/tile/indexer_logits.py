"""Lightning indexer scores in TileLang, for FP8 or bf16 keys. Keys are the M of an MMA, (query, head) pairs its N.

In ragged prefill the grid has one thread block for each block of queries and chunk of CHUNK keys; it exits at once if none of its
queries may see its keys. In paged decode a thread block takes CHUNK keys of one sequence, page by page.
"""

from typing import Any

import tilelang.language as T
import torch
import torch.nn.functional as F

from ..types import IndexerOperands, PagedIndexerOperands
from .factory import tile_kernel
from .lanes import dtype_name

FP8, BF16 = "float8_e4m3fn", "bfloat16"
WIDTH = 128
TILE = 128  # keys per stage
COLUMNS = 128  # (query, head) pairs per thread block
CHUNK = 2048
PAGE = 64
LINES = {FP8: PAGE + 2, BF16: PAGE}  # lines of 128 values per page: 64 fp32 scales follow FP8 keys
WORDS = LINES[FP8] * WIDTH // 4  # fp32 words of an FP8 page
NEW = 4  # the most new tokens of a sequence per thread block


@tile_kernel((64, FP8), (16, BF16))
def ragged(heads: int, dtype: str) -> Any:
    """q [rows * heads, 128], k [keys, 128], weights [rows, heads] -> out [rows, keys], for head counts that divide 128."""
    queries = COLUMNS // heads
    rows, keys, lines = T.dynamic("rows"), T.dynamic("keys"), T.dynamic("lines")

    @T.prim_func
    def kernel(
        q: T.Tensor((lines, WIDTH), dtype),
        k: T.Tensor((keys, WIDTH), dtype),
        scales: T.Tensor((keys,), "float32"),
        weights: T.Tensor((rows, heads), "float32"),
        starts: T.Tensor((rows,), "int32"),
        ends: T.Tensor((rows,), "int32"),
        out: T.Tensor((rows, keys), "float32"),
    ):
        with T.Kernel(T.ceildiv(keys, CHUNK), T.ceildiv(rows, queries), threads=256) as (chunk, block):
            q_tile = T.alloc_shared((COLUMNS, WIDTH), dtype)
            k_tile = T.alloc_shared((TILE, WIDTH), dtype)
            score = T.alloc_fragment((TILE, COLUMNS), "float32")
            by_query = T.reshape(score, (TILE, queries, heads))
            total = T.alloc_fragment((TILE, queries), "float32")
            weight = T.alloc_fragment((queries, heads), "float32")
            low, high = T.alloc_var("int32"), T.alloc_var("int32")
            low, high = keys, 0
            for i in T.serial(queries):
                row = T.min(block * queries + i, rows - 1)
                if starts[row] < ends[row]:
                    low = T.min(low, starts[row])
                    high = T.max(high, ends[row])
            if (low < (chunk + 1) * CHUNK) & (high > chunk * CHUNK):
                T.copy(q[block * COLUMNS : (block + 1) * COLUMNS, :], q_tile)
                for i, h in T.Parallel(queries, heads):
                    weight[i, h] = T.if_then_else(
                        block * queries + i < rows, weights[T.min(block * queries + i, rows - 1), h], 0.0
                    )
                for tile in T.Pipelined(CHUNK // TILE, num_stages=3):
                    first = chunk * CHUNK + tile * TILE
                    T.copy(k[first : first + TILE, :], k_tile)
                    T.gemm(k_tile, q_tile, score, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for s, i, h in T.Parallel(TILE, queries, heads):
                        by_query[s, i, h] = T.max(by_query[s, i, h], 0.0) * weight[i, h]
                    T.reduce_sum(by_query, total, dim=2, clear=True)
                    for s, i in T.Parallel(TILE, queries):
                        if (first + s < keys) & (block * queries + i < rows):
                            out[block * queries + i, first + s] = total[s, i] * (
                                scales[first + s] if dtype == FP8 else 1.0
                            )

    return kernel


@tile_kernel((64, 1, FP8), (16, 2, BF16))
def paged(heads: int, new: int, dtype: str) -> Any:
    """q [sequences * new * heads, 128]; pages [P, LINES, 128]; words, the same memory as fp32 -> out [sequences * new, columns]."""
    count, sequences, columns = T.dynamic("pages"), T.dynamic("sequences"), T.dynamic("columns")
    width, scale_pages = T.dynamic("table_width"), T.dynamic("scale_pages")
    pairs = new * heads

    @T.prim_func
    def kernel(
        q: T.Tensor((sequences, pairs, WIDTH), dtype),
        pages: T.Tensor((count, LINES[dtype], WIDTH), dtype),
        words: T.Tensor((scale_pages, WORDS), "float32"),
        weights: T.Tensor((sequences, new, heads), "float32"),
        table: T.Tensor((sequences, width), "int32"),
        lengths: T.Tensor((sequences,), "int32"),
        out: T.Tensor((sequences, new, columns), "float32"),
    ):
        with T.Kernel(T.ceildiv(columns, CHUNK), sequences, threads=128) as (chunk, b):
            q_tile = T.alloc_shared((pairs, WIDTH), dtype)
            k_tile = T.alloc_shared((PAGE, WIDTH), dtype)
            score = T.alloc_fragment((PAGE, pairs), "float32")
            by_query = T.reshape(score, (PAGE, new, heads))
            total = T.alloc_fragment((PAGE, new), "float32")
            weight = T.alloc_fragment((new, heads), "float32")
            # TileLang's lowering splits this into roles and loses a variable that holds the length, so it is read at each use.
            if chunk * CHUNK < T.min(lengths[b], columns):
                T.copy(q[b, :, :], q_tile)
                T.copy(weights[b, :, :], weight)
                for at in T.Pipelined(CHUNK // PAGE, num_stages=3):
                    # Past the end, the last page is computed again and not written.
                    last = T.ceildiv(T.min(lengths[b], columns), PAGE) - 1
                    page = table[b, T.min(chunk * (CHUNK // PAGE) + at, last)]
                    first = chunk * CHUNK + at * PAGE
                    T.copy(pages[page, 0:PAGE, :], k_tile)
                    T.gemm(k_tile, q_tile, score, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for s, i, h in T.Parallel(PAGE, new, heads):
                        by_query[s, i, h] = T.max(by_query[s, i, h], 0.0) * weight[i, h]
                    T.reduce_sum(by_query, total, dim=2, clear=True)
                    for s, i in T.Parallel(PAGE, new):
                        if first + s < T.min(lengths[b], columns):
                            out[b, i, first + s] = total[s, i] * (
                                words[page, PAGE * WIDTH // 4 + s] if dtype == FP8 else 1.0
                            )

    return kernel


def _padded(q: torch.Tensor, weights: torch.Tensor) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Pad q and weights with zeros to a head count that the kernels support. Return it first."""
    missing = max(16, 1 << (q.shape[-2] - 1).bit_length()) - q.shape[-2]
    if missing:  # as bytes, because torch cannot pad FP8 tensors
        q, weights = F.pad(q.view(torch.uint8), (0, 0, 0, missing)).view(q.dtype), F.pad(weights, (0, missing))
    return q.shape[-2], q, weights


def indexer_logits(given: IndexerOperands) -> torch.Tensor:
    q, k, weights, starts, ends, k_scale = given
    heads, q, weights = _padded(q, weights)
    out = q.new_empty(q.shape[0], k.shape[0], dtype=torch.float32)
    scales = weights.new_empty(k.shape[0]) if k_scale is None else k_scale.contiguous()
    operands = q.contiguous().view(-1, WIDTH), k.contiguous(), scales, weights.contiguous(), starts, ends
    ragged(heads, dtype_name(q.dtype))(*operands, out)
    return out


def paged_indexer_logits(given: PagedIndexerOperands) -> torch.Tensor:
    q, cache, weights, block_table, lengths, max_context = given
    batch, new = q.shape[:2]
    if new > NEW:
        parts = [(q[:, i : i + NEW], weights[:, i : i + NEW]) for i in range(0, new, NEW)]
        found = [
            paged_indexer_logits(given._replace(q=some, weights=own)).view(batch, -1, max_context)
            for some, own in parts
        ]
        return torch.cat(found, 1).view(-1, max_context)
    heads, q, weights = _padded(q, weights)
    dtype, pages = dtype_name(q.dtype), cache.shape[0]
    flat = cache.contiguous().view(pages, -1)
    words = flat.view(torch.float32) if dtype == FP8 else weights.new_empty(1, WORDS)
    out = q.new_empty(batch, new, max_context, dtype=torch.float32)
    if out.numel():
        queries, lines = q.contiguous().view(batch, new * heads, WIDTH), flat.view(q.dtype).view(pages, -1, WIDTH)
        kernel = paged(heads, new, dtype)
        kernel(queries, lines, words, weights.contiguous(), block_table.contiguous(), lengths, out)
    return out.view(-1, max_context)
