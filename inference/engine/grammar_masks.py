"""The masks of a step's grammars: which tokens may come next, for all rows at once, on several threads if they are many."""

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..text.grammar import Grammar
from .filters import Row

if TYPE_CHECKING:
    from llguidance import LLExecutor

_SHARED_ROWS = 8  # a mask takes 2 to 10 µs, and waking the threads up as long as some masks
_MOST_THREADS = 8


def make_masks(rows: Sequence[Row], vocab: int, on_gpu: bool) -> torch.Tensor:
    """int32 [M, ⌈vocab / 32⌉] on the host: a bit for each token that may come, the lowest first. All rows have a grammar.

    on_gpu: the masks go there, from page-locked memory; without a GPU the model's own threads need the cores. Raises what a
    request's grammar raises.
    """
    masks = torch.empty(len(rows), -(-vocab // 32), dtype=torch.int32, pin_memory=on_gpu)
    words = masks.numpy().view(np.uint32)
    followed: list[tuple[int, Grammar, Row]] = []
    matchers = []
    for place, row in enumerate(rows):
        request = row.request
        grammar = request.grammar
        assert grammar is not None and not row.offset, "requests with a grammar have no drafts"
        matcher = grammar.follow(request.tokens, len(request.prompt))
        if matcher is None:
            words[place] = grammar.before
        else:
            followed.append((place, grammar, row))
            matchers.append((matcher, place))
    address, width = masks.data_ptr(), 4 * words.shape[1]
    if len(matchers) < _SHARED_ROWS or not on_gpu:
        for matcher, place in matchers:
            matcher.unsafe_compute_mask_ptr(address + place * width, width)
    else:
        _executor().unsafe_compute_mask_ptr(matchers, address, width, len(rows))
    for place, grammar, row in followed:
        grammar.check()
        if row.request.params.min_tokens and not may_end(row):
            grammar.postpone_end(words[place])
    return masks


def may_end(row: Row) -> bool:
    """Whether min_tokens have come."""
    request = row.request
    return request.output_count + max(request.pending - 1, 0) + row.offset >= request.params.min_tokens


@cache
def _executor() -> "LLExecutor":
    from llguidance import LLExecutor

    return LLExecutor(max(min(_MOST_THREADS, (os.cpu_count() or 2) // 2), 1))
