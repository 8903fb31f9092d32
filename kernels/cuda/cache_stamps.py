"""Stamps next to the paged caches on the GPU: one kernel at the beginning of a step, one at its end, for CUDA graphs too."""

from collections.abc import Sequence

import torch

from ..build import load
from ..reference.cache_stamps import Stamps


def stamp_tokens(
    tokens: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: torch.Tensor | None,
    stamps: Stamps,
) -> torch.Tensor:
    result = tokens.new_empty(*stamps.factors.shape, len(tokens), dtype=torch.int32)
    written = stamps.chains, stamps.factors, stamps.multipliers, result
    load("cache_stamps").stamp_tokens(tokens, positions, slots, block_table, query_starts, *written, stamps.page_size)
    return result


def check_cache(
    caches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    stamps: Stamps,
    block_table: torch.Tensor,
    step: torch.Tensor,
    tasks: torch.Tensor | None,
    lengths: torch.Tensor | None,
    truths: torch.Tensor | None,
) -> None:
    """Check pages; the kernel reads the caches at `stamps.addresses`."""
    tables = stamps.chains, stamps.columns, stamps.hashes, stamps.factors, stamps.multipliers, stamps.addresses
    sizes = stamps.page_size, *stamps.page_words, stamps.padding_page
    load("cache_stamps").check_cache(
        block_table, step, tasks, lengths, truths, *tables, stamps.claims, stamps.found, *sizes
    )
