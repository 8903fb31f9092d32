"""The whole contract between the model and whatever serves it: what a forward pass is told, and where it keeps state.

A step processes T new tokens of B sequences, laid end to end. Sequences with exactly one new token ("decodes") come
first, then those with a prompt chunk ("prefills"). A sequence's context is every token it has so far, the new ones included;
its entries lie in pages, and entry s of sequence b has slot ``block_table[b, s // PAGE_SIZE] * PAGE_SIZE + s % PAGE_SIZE``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

PAGE_SIZE = 64  # tokens; the page size that the public FP8 MLA cache format fixes


class Selection(NamedTuple):
    """What R queries attend to."""

    positions: torch.Tensor  # int32 [R, K], context positions, -1 for none
    # The indexer's scores of these positions, fp32 [R, K]; None if it had to choose nothing, or nobody asked.
    scores: torch.Tensor | None = None


SelectionCallback = Callable[[int, torch.Tensor, Selection], None]


@dataclass(frozen=True)
class LayerCache:
    """One layer's share of the paged caches. dtypes: uint8 is the FP8 byte layout, otherwise plain bf16 or fp32 rows."""

    latent: torch.Tensor  # [P, 64, 1, 656] uint8, or [P, 64, 1, kv_lora_rank + rope] bf16 / fp32
    index: torch.Tensor  # [P, 64, 1, 132] uint8 (keys of a page first, then its scales), or [P, 64, 1, 128] bf16 / fp32


@dataclass(frozen=True)
class Prefill:
    """One sequence's chunk of a step, as `AttentionMetadata.prefills` yields it."""

    rows: slice  # its rows among the T new tokens
    start: int  # position of its first new token = number of tokens already cached
    length: int  # context length after this step
    context_slots: torch.Tensor  # int64 [length], slot of every context token


@dataclass(frozen=True)
class AttentionMetadata:
    """What one step needs to know about its sequences. Filled by the runner, read by the attention layers."""

    query_lengths: tuple[int, ...]  # B numbers of new tokens; the leading `decodes` of them are 1
    context_lengths: tuple[int, ...]  # B context lengths, new tokens included
    decodes: int  # how many leading sequences take the decode path
    block_table: torch.Tensor  # int32 [B, pages], page ids; columns past a sequence's pages hold 0 and are never read
    lengths: torch.Tensor  # int32 [B], context_lengths on the device
    slots: torch.Tensor  # int64 [T], where the new tokens' cache entries go
    logit_rows: torch.Tensor  # int64 [N], the rows of T whose logits are wanted
    max_context: int  # at least max(context_lengths[:decodes]); a bucket's bound under a CUDA graph
    decode_plan: object | None = (
        None  # split-KV plan of the decodes; None: the model makes one, once a step, for all its layers
    )
    # Called once a layer and sequence group with (layer, rows int64 [R] on the CPU, their selection, scores included).
    on_selection: SelectionCallback | None = None

    def prefills(self) -> Iterator[Prefill]:
        """The sequences after the decodes, in order."""
        row = self.decodes
        for b in range(self.decodes, len(self.query_lengths)):
            new, length = self.query_lengths[b], self.context_lengths[b]
            yield Prefill(slice(row, row + new), length - new, length, context_slots(self.block_table[b], length))
            row += new


def context_slots(pages: torch.Tensor, length: int) -> torch.Tensor:
    """Slots (int64 [length]) of a sequence's first `length` tokens, from its row of the block table (int32 [pages])."""
    offsets = torch.arange(PAGE_SIZE, device=pages.device)
    count = -(-length // PAGE_SIZE)
    return (pages[:count].long()[:, None] * PAGE_SIZE + offsets).flatten()[:length]
