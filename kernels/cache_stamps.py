"""Stamps next to the paged caches: they tell whose entries a page holds, and whether every launch that should write them has run.

A sequence's *chain* after position i is ``sum over j <= i of (token_j + 1) * multipliers[j]`` mod 2^64 (multilinear hashing, Carter
and Wegman 1979; Lemire and Kaser, arXiv 1202.4961): two different prefixes have the same chain with a probability of about 2^-63.
Each step writes two chains to every new slot: the one before its token, read from the previous position's slot through the block
table, and the one after it. The stamp of a slot in layer l is the high half of ``chain after * factors[l, kind]``, where kind is 0
for the latent and 1 for the index key (multiply-shift hashing, Dietzfelbinger et al. 1997). The launch that writes an entry also
stores its stamp (`Stamp`, an argument of kernels/cache_write.py). So a launch that is skipped, or that writes to another slot,
leaves a stamp that does not match.

`check_cache` compares: stamps with chains, each chain with the one before it, the last chain with the one that the host computes
from the request's tokens, and the bytes of full pages with the hash that was taken when they became full. Mismatches go
to `Stamps.found`, which the host reads without waiting for the device.
"""

from collections.abc import Sequence

import numpy as np
import torch

from .checks import check_pages, check_tensor, check_values
from .reference.cache_stamps import Stamps
from .registry import Preference, choose


def multiplier_table(count: int) -> np.ndarray:
    """Return the first `count` odd multipliers, uint64: SplitMix64 (Steele et al. 2014) of 1, 2, 3, …, with the lowest bit set."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def stamp_tokens(
    tokens: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: torch.Tensor | None,
    stamps: Stamps,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Write the chains of a step's new tokens to their slots -> the tokens' stamps in every layer, int32 [L, 2, T].

    tokens, positions, slots int64 [T], sequence after sequence; block_table int32 [B, W]; query_starts int32 [B + 1]: sequence b
    has rows query_starts[b] to query_starts[b + 1]. None: every sequence has one new token. Values outside: checks.py.
    """
    check_tensor("tokens", tokens, (None,), torch.int64)
    device = tokens.device
    check_tensor("positions", positions, tuple(tokens.shape), torch.int64, device)
    check_tensor("slots", slots, tuple(tokens.shape), torch.int64, device)
    check_tensor("block_table", block_table, (len(tokens) if query_starts is None else None, None), torch.int32, device)
    if query_starts is not None:
        check_tensor("query_starts", query_starts, (block_table.shape[0] + 1,), torch.int32, device)
        check_values("query_starts", query_starts, len(tokens), "tokens has {} rows", len(tokens))
    if device.type == "cpu" and len(tokens):
        pages = len(stamps.chains) // stamps.page_size
        check_values("slots", slots, len(stamps.chains) - 1, f"the cache has {pages} pages of {stamps.page_size}")
        known = len(stamps.multipliers)
        check_values("positions", positions, known - 1, f"stamps.multipliers has {known} values")
        first = positions if query_starts is None else positions[query_starts[:-1].clamp(max=len(tokens) - 1)]
        check_pages("positions", first, block_table, stamps.page_size, pages)
    return choose("stamp_tokens", tokens, backend)(tokens, positions, slots, block_table, query_starts, stamps)


def check_cache(
    caches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    stamps: Stamps,
    block_table: torch.Tensor,
    step: torch.Tensor,
    tasks: torch.Tensor | None,
    lengths: torch.Tensor | None,
    truths: torch.Tensor | None,
    *,
    backend: str | Preference = "auto",
) -> None:
    """Check pages in all layers, and report the first mismatch of each row to `stamps.found`.

    caches: each layer's latents and index keys [P, page_size, 1, D]. block_table int32 [B, W]. step int64 [1], above 0.

    tasks int64 [N, 5]: (row of the block table, page of the sequence, number of its leading entries to check, actions, row to
    report). An action is a sum of RECORD_HASH and COMPARE_HASH, for full pages. None: the batch has only decodes, with `lengths`
    int32 [B], and the tasks are `decode_tasks` of them. truths int64 [K, 3]: (row, position, chain after it); row -1: none.
    Values outside: checks.py.
    """
    check_tensor("block_table", block_table, (None, None), torch.int32)
    device = block_table.device
    check_tensor("step", step, (1,), torch.int64, device)
    if (tasks is None) == (lengths is None):
        raise ValueError("tasks and lengths are both given or both None; expected one of them")
    if tasks is not None:
        check_tensor("tasks", tasks, (None, 5), torch.int64, device)
    if lengths is not None:
        check_tensor("lengths", lengths, (block_table.shape[0],), torch.int32, device)
    if truths is not None:
        check_tensor("truths", truths, (None, 3), torch.int64, device)
    if device.type == "cpu":
        _check_places(stamps, block_table, tasks, lengths, truths)
    choose("check_cache", block_table, backend)(caches, stamps, block_table, step, tasks, lengths, truths)


def _check_places(
    stamps: Stamps,
    block_table: torch.Tensor,
    tasks: torch.Tensor | None,
    lengths: torch.Tensor | None,
    truths: torch.Tensor | None,
) -> None:
    """Check that tasks, lengths and truths of `check_cache` name pages of the block table and the cache."""
    size, pages, (rows, width) = stamps.page_size, stamps.hashes.shape[2], block_table.shape
    of_table, of_cache = f"block_table has {rows} rows of {width} pages", f"the cache has {pages} pages"
    if lengths is not None:
        check_pages("lengths", lengths, block_table, size, pages)
    if tasks is not None:
        for column, most in enumerate((rows - 1, width - 1, size)):
            check_values(f"tasks[:, {column}]", tasks[:, column], most, of_table)
        check_values("tasks[:, 4]", tasks[:, 4], len(stamps.claims) - 1, f"stamps.claims has {len(stamps.claims)} rows")
        check_values("block_table", block_table[tasks[:, 0], tasks[:, 1]], pages - 1, of_cache)
    if truths is not None:
        check_values("truths[:, 0]", truths[:, 0], rows - 1, of_table, least=-1)
        given = truths[truths[:, 0] >= 0]
        check_values("truths[:, 1]", given[:, 1], width * size - 1, of_table)
        check_values("block_table", block_table[given[:, 0], given[:, 1] // size], pages - 1, of_cache)
