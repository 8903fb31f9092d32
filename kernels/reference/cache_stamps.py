"""Stamps beside the paged caches, in plain PyTorch. Integers of 64 bits wrap, as the definitions in kernels/cache_stamps.py ask."""

from collections.abc import Sequence

import torch

from ..cache_stamps import (
    CHAIN,
    COMPARE_HASH,
    FOUND_WORDS,
    INDEX,
    INDEX_BYTES,
    LATENT,
    LATENT_BYTES,
    RECORD_HASH,
    TOKENS,
    Stamps,
)

_FIBONACCI = 2654435769  # 2^32 / golden ratio: multiples of it, modulo 2^32, lie evenly spread
HASH_EVERY = 8  # decode steps of a sequence between two in which the bytes of a page are hashed
_PAGES = 64  # that are checked at a time


def stamp_tokens(
    tokens: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    stamps: Stamps,
) -> torch.Tensor:
    size, chains = stamps.page_size, stamps.chains
    terms = (tokens + 1) * stamps.multipliers[positions]
    single = len(tokens) == len(block_table)  # every sequence has one new token
    starts = query_starts[:-1].long()
    previous = (positions if single else positions[starts]) - 1  # -1 at the beginning of a sequence
    pages = block_table.gather(1, (previous.clamp(min=0) // size)[:, None])[:, 0]
    base = torch.where(previous < 0, 0, chains[pages * size + previous.clamp(min=0) % size, 1])
    if not single:
        sums = terms.cumsum(0)
        base = base - (sums - terms)[starts]
        base = base.repeat_interleave(query_starts.diff(), output_size=len(tokens)) + sums - terms
    after = base + terms
    chains[slots] = torch.stack((base, after), 1)
    return ((after * stamps.factors[:, :, None]) >> 32).int()


def decode_tasks(lengths: torch.Tensor, page_size: int) -> torch.Tensor:
    """The tasks of a step of decodes, int64 [2 B, 5]: the page of each new token, then one earlier page of each sequence.

    A page that has become full is hashed. The earlier page is another one at each step, and every HASH_EVERY-th step its hash is
    compared. A sequence without a full earlier page checks none of its entries.
    """
    rows = torch.arange(len(lengths), device=lengths.device)
    position = lengths.long() - 1
    pages, entries = position // page_size, position % page_size + 1
    own = torch.stack((rows, pages, entries, RECORD_HASH * (entries == page_size).long(), rows), 1)
    some = ((position * _FIBONACCI) & 0xFFFFFFFF) * pages >> 32
    full, compare = (pages > 0) * page_size, COMPARE_HASH * ((pages > 0) & (position % HASH_EVERY == 0)).long()
    return torch.cat((own, torch.stack((rows, some, full, compare, rows), 1)))


def check_cache(
    caches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    stamps: Stamps,
    block_table: torch.Tensor,
    step: torch.Tensor,
    tasks: torch.Tensor | None,
    lengths: torch.Tensor | None,
    truths: torch.Tensor | None,
) -> None:
    size = stamps.page_size
    if tasks is None:
        assert lengths is not None
        tasks = decode_tasks(lengths, size)
    for some in tasks.split(_PAGES):
        _check_pages(caches, stamps, block_table, step, some)
    if truths is not None:
        rows, positions, values = truths[truths[:, 0] >= 0].unbind(1)
        chains = stamps.chains[block_table[rows, positions // size].long() * size + positions % size, 1]
        for k in (chains != values).nonzero()[:, 0].tolist():
            _report(stamps, step, int(rows[k]), TOKENS, 0, int(positions[k]), values[k], chains[k])


def _check_pages(
    caches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    stamps: Stamps,
    block_table: torch.Tensor,
    step: torch.Tensor,
    tasks: torch.Tensor,
) -> None:
    size, chains = stamps.page_size, stamps.chains
    rows, numbers, entries, actions, reported = tasks.unbind(1)
    pages = block_table[rows, numbers].long()
    offsets = torch.arange(size, device=pages.device)
    slots = pages[:, None] * size + offsets
    valid = (offsets < entries[:, None]) & (pages != stamps.padding_page)[:, None]
    before, after = chains[slots].unbind(2)  # [N, page]
    last = chains[block_table[rows, (numbers - 1).clamp(min=0)].long() * size + size - 1, 1]
    previous = torch.cat((torch.where(numbers == 0, 0, last)[:, None], after[:, :-1]), 1)
    stamped = ((after * stamps.factors[..., None, None]) >> 32).int()  # [L, 2, N, page]
    present = stamps.columns[:, :, slots]
    wrong_links, wrong_stamps = (before != previous) & valid, (stamped != present) & valid
    if wrong_links.any() or wrong_stamps.any():
        for n, offset in wrong_links.nonzero().tolist():
            position = int(numbers[n]) * size + offset
            _report(stamps, step, int(reported[n]), CHAIN, 0, position, previous[n, offset], before[n, offset])
        for layer, kind, n, offset in wrong_stamps.nonzero().tolist():
            position = int(numbers[n]) * size + offset
            values = stamped[layer, kind, n, offset], present[layer, kind, n, offset]
            _report(stamps, step, int(reported[n]), (LATENT, INDEX)[kind], layer, position, *values)
    if actions.any():
        hashed = (actions > 0) & (pages != stamps.padding_page)
        _hash_pages(caches, stamps, step, tasks[hashed], pages[hashed])


def _hash_pages(
    caches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    stamps: Stamps,
    step: torch.Tensor,
    tasks: torch.Tensor,
    pages: torch.Tensor,
) -> None:
    """Take the hashes of pages, or compare them, as the tasks say."""
    compared = tasks[:, 3] & COMPARE_HASH > 0
    for layer, cache in enumerate(caches):
        for kind, name in enumerate((LATENT_BYTES, INDEX_BYTES)):
            hashes, kept = hash_pages(cache[kind], pages, stamps.multipliers), stamps.hashes[layer, kind]
            for n in ((hashes != kept[pages]) & compared).nonzero()[:, 0].tolist():
                position = int(tasks[n, 1]) * stamps.page_size
                _report(stamps, step, int(tasks[n, 4]), name, layer, position, kept[pages[n]], hashes[n])
            kept[pages[~compared]] = hashes[~compared]


def hash_pages(cache: torch.Tensor, pages: torch.Tensor, multipliers: torch.Tensor) -> torch.Tensor:
    """int64 [N]: of each page, the sum of its 32-bit words, each times the multiplier of its place."""
    words = cache[pages].view(len(pages), -1).view(torch.int32)
    return (words * multipliers[: words.shape[1]]).sum(1)


def _report(
    stamps: Stamps,
    step: torch.Tensor,
    row: int,
    kind: int,
    layer: int,
    position: int,
    expected: torch.Tensor,
    found: torch.Tensor,
) -> None:
    """Note the first mismatch of a row in a step."""
    number = int(step)
    if int(stamps.claims[row]) >= number:
        return
    stamps.claims[row] = number
    half = stamps.found[number & 1]
    start = 1 + FOUND_WORDS * row
    where = kind << 48 | layer << 32 | position
    half[start : start + FOUND_WORDS] = torch.tensor([number, where, int(expected), int(found)])
    half[0] = number
