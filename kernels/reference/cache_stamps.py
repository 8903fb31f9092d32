"""Stamps next to the paged caches, in plain PyTorch, and their type. 64-bit integers wrap, as kernels/cache_stamps.py defines."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..types import INDEX, LATENT

# Actions of a task of `check_cache`, and the kinds of mismatch in `Stamps.found`.
RECORD_HASH, COMPARE_HASH = 1, 2
CHAIN, TOKENS, LATENT_BYTES, INDEX_BYTES = range(2, 6)  # after LATENT and INDEX
FOUND_WORDS = 4  # of a row's record in `Stamps.found`
_FIBONACCI = 2654435769  # 2^32 / golden ratio: multiples of it, modulo 2^32, lie evenly spread
HASH_EVERY = 8  # decode steps of a sequence between two in which the bytes of a page are hashed
_PAGES = 64  # that are checked at a time


class Stamps(NamedTuple):
    """All stamps of L layers over P pages of `page_size` slots, S in all, and where mismatches are reported."""

    page_size: int
    chains: torch.Tensor  # int64 [S, 2]: the chain before and after each slot's token
    columns: torch.Tensor  # int32 [L, 2, S]: stamps of latents and of index keys
    hashes: torch.Tensor  # int64 [L, 2, P]: of the bytes of full pages
    factors: torch.Tensor  # int64 [L, 2], odd
    multipliers: torch.Tensor  # int64 [N], odd, by position; also by word of a page
    # uint64 addresses as int64 [L, 2]: of each layer's latents and index keys, for compiled kernels
    addresses: torch.Tensor
    page_words: tuple[int, int]  # 64-bit words of a page of latents and of index keys
    claims: torch.Tensor  # int64 [R]: the last step that reported a mismatch of each row of the batch
    # int64 [2, 1 + R * FOUND_WORDS], on the device or in pinned memory of the host. A step uses the half that its number's parity
    # says: first the number of a step that found a mismatch; then for each row (step, kind << 48 | layer << 32 | position,
    # expected, found), where the first mismatch of a row in a step stays.
    found: torch.Tensor
    padding_page: int  # the page that padding rows of decode graphs write; it is not checked


def stamp_tokens(
    tokens: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_table: torch.Tensor,
    query_starts: torch.Tensor | None,
    stamps: Stamps,
) -> torch.Tensor:
    size, chains = stamps.page_size, stamps.chains
    if query_starts is None and tokens.device.type == "cpu":
        return _stamp_decodes(tokens, positions, slots, block_table, stamps)
    terms = (tokens + 1) * stamps.multipliers[positions]
    starts = positions if query_starts is None else positions[query_starts[:-1]]
    previous = (starts - 1).clamp(min=0)
    pages = block_table.gather(1, (previous // size)[:, None])[:, 0]
    base = torch.where(starts == 0, 0, chains[pages * size + previous % size, 1])
    if query_starts is not None:
        sums = terms.cumsum(0) - terms
        base = base - sums[query_starts[:-1]]
        base = base.repeat_interleave(query_starts.diff(), output_size=len(tokens)) + sums
    after = base + terms
    chains[slots] = torch.stack((base, after), 1)
    return ((stamps.factors[:, :, None] * after) >> 32).int()


def _stamp_decodes(
    tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, block_table: torch.Tensor, stamps: Stamps
) -> torch.Tensor:
    """`stamp_tokens` for one token of each sequence, in numpy, whose calls cost a fraction of PyTorch's."""
    size, chains = stamps.page_size, stamps.chains.numpy()
    place, at = positions.numpy(), slots.numpy()
    if (place % size).all():  # most steps: the previous position's slot is the one before
        base = chains[at - 1, 1]
    else:
        previous = np.maximum(place - 1, 0)
        pages = block_table.numpy()[np.arange(len(place)), previous // size]
        base = chains[pages * size + previous % size, 1] * (place > 0)
    after = base + (tokens.numpy() + 1) * stamps.multipliers.numpy()[place]
    chains[at, 0] = base
    chains[at, 1] = after
    return torch.from_numpy(((stamps.factors.numpy()[:, :, None] * after) >> 32).astype(np.int32))


def decode_tasks(lengths: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return the tasks of a step of decodes, int64 [2 B, 5]: the page of each new token, then one earlier page of each sequence.

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
    offsets = torch.arange(size, device=tasks.device)
    pages = block_table[rows, numbers].long()
    slots = (pages[:, None] * size + offsets).flatten()
    valid = (offsets < entries[:, None]).logical_and_((pages != stamps.padding_page)[:, None])
    before, after = chains.index_select(0, slots).view(-1, size, 2).unbind(2)  # [N, page]
    last = block_table[rows, (numbers - 1).clamp_(min=0)] * size + (size - 1)
    begins = chains[:, 1].index_select(0, last).masked_fill_(numbers == 0, 0)
    wrong_links = (before != torch.cat((begins[:, None], after[:, :-1]), 1)).logical_and_(valid)
    stamped = ((stamps.factors[..., None, None] * after) >> 32).int()  # [L, 2, N, page]
    present = stamps.columns.index_select(2, slots).view_as(stamped)
    wrong_stamps = (stamped != present).logical_and_(valid)
    if wrong_links.any() or wrong_stamps.any():
        for n, offset in wrong_links.nonzero().tolist():
            position, previous = int(numbers[n]) * size + offset, after[n, offset - 1] if offset else begins[n]
            _report(stamps, step, int(reported[n]), CHAIN, 0, position, previous, before[n, offset])
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
    size = stamps.page_size
    for (_, number, _, action, row), page in zip(tasks.tolist(), pages.tolist(), strict=True):
        for layer, cache in enumerate(caches):
            for kind, name in enumerate((LATENT_BYTES, INDEX_BYTES)):
                present, kept = hash_page(cache[kind][page], stamps.multipliers), stamps.hashes[layer, kind, page]
                if action & RECORD_HASH:
                    kept.copy_(present)
                elif present != kept:
                    _report(stamps, step, row, name, layer, number * size, kept, present)


def hash_page(page: torch.Tensor, multipliers: torch.Tensor) -> torch.Tensor:
    """Return the sum of a page's 64-bit words, each times the multiplier of its place: int64 [], on the page's device."""
    words = page.view(-1).view(torch.int64)
    return (words * multipliers[: len(words)]).sum()


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
