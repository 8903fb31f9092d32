"""Dense decode in TileLang: mla_pipelined.py over paged contexts with split-KV. A second kernel merges the partial results."""

from typing import Any

import tilelang.language as T
import torch

from ..types import SplitPlan
from .factory import tile_kernel
from .mla_pipelined import BLOCK, FLOOR, LATENT, ROWS, attend, check_layout

MOST_PARTS = 256  # the most splits of an item that `combine` can merge


@tile_kernel(("bfloat16",))
def combine(dtype: str) -> Any:
    """Merge the partial results of an item by their logsumexp, one thread block per row.

    partial [N, P, R, 512] and partial_lse [N, P, R] fp32 -> out [N, R, 512], lse [N, R]; a split without keys has lse -inf.
    """
    items, parts, rows = T.dynamic("items"), T.dynamic("parts"), T.dynamic("rows")

    @T.prim_func
    def flash_fwd_mla_combine_kernel(
        partial: T.Tensor((items, parts, rows, LATENT), "float32"),
        partial_lse: T.Tensor((items, parts, rows), "float32"),
        out: T.Tensor((items, rows, LATENT), dtype),
        lse: T.Tensor((items, rows), "float32"),
    ):
        with T.Kernel(items * rows, threads=128) as cta:
            item, row = T.truncdiv(cta, rows), T.truncmod(cta, rows)
            weight = T.alloc_fragment((MOST_PARTS,), "float32")
            weights = T.alloc_shared((MOST_PARTS,), "float32")
            highest, sums = T.alloc_fragment((1,), "float32"), T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((LATENT,), "float32")
            for part in T.Parallel(MOST_PARTS):
                weight[part] = T.if_then_else(
                    part < parts, partial_lse[item, T.min(part, parts - 1), row], -T.infinity("float32")
                )
            T.reduce_max(weight, highest, dim=0)
            for part in T.Parallel(MOST_PARTS):
                weight[part] = T.exp(weight[part] - T.max(highest[0], FLOOR))
            T.reduce_sum(weight, sums, dim=0)
            T.copy(weight, weights)
            T.fill(total, 0)
            for part in T.unroll(parts, unroll_factor=8):
                for d in T.Parallel(LATENT):
                    total[d] += partial[item, part, row, d] * weights[part]
            for d in T.Parallel(LATENT):
                out[item, row, d] = T.if_then_else(sums[0] > 0, total[d] / sums[0], 0)
            lse[item, row] = T.if_then_else(sums[0] > 0, highest[0] + T.log(sums[0]), -T.infinity("float32"))

    return flash_fwd_mla_combine_kernel


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
    """Only the shapes decide the number of splits: `plan` is not used, and a captured graph serves every length."""
    batch, fresh, heads, _ = q.shape
    pages, page = cache.shape[:2]
    rows = fresh * heads
    queries, keys = q.reshape(batch, rows, q.shape[3]), cache.reshape(pages * page, q.shape[3])
    check_layout(value_dim, q=queries, cache=keys)
    out = q.new_empty(batch, fresh, heads, value_dim)
    lse = torch.empty(batch, fresh, heads, dtype=torch.float32, device=q.device)
    if batch == 0:
        return out, lse.transpose(1, 2)
    tiles = batch * -(-rows // ROWS)
    parts = _parts(tiles, block_table.shape[1] * page, q.device)
    dtype = str(q.dtype).removeprefix("torch.")
    kernel = attend(dtype, True, causal and fresh > 1, True, False, parts > 1)
    scores = torch.empty(2, batch * parts, rows, dtype=torch.float32, device=q.device)  # maxima, and logsumexps
    results = out.view(batch, rows, value_dim)
    if parts > 1:
        results = torch.empty(batch * parts, rows, value_dim, dtype=torch.float32, device=q.device)
    lengths = cache_seqlens.clamp(max=block_table.shape[1] * page)  # the kernel reads the table unchecked
    kernel(queries, keys, block_table, lengths, scores[0, 0], results, *scores, softmax_scale, parts, page, fresh)
    if parts > 1:
        partial = results.view(batch, parts, rows, value_dim)
        target = out.view(batch, rows, value_dim)
        combine(dtype)(partial, scores[1].view(batch, parts, rows), target, lse.view(batch, rows))
    else:
        lse = scores[1].view(batch, fresh, heads)
    return out, lse.transpose(1, 2)


def _parts(tiles: int, capacity: int, device: torch.device) -> int:
    """The number of splits of each item: one wave of thread blocks, and at least a pair of key blocks per split."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(processors // tiles, -(-capacity // (2 * BLOCK)), MOST_PARTS))
