"""The contract between the model and the engine that runs it: the description of a step, and the caches that hold state.

A step processes T new tokens of B sequences, concatenated. Sequences with exactly one new token ("decodes") come first, then
those with a prompt chunk ("prefills"). A sequence's context is every token it has so far, including the new ones. Its cache
entries lie in pages; entry s of sequence b has slot ``block_table[b, s // PAGE_SIZE] * PAGE_SIZE + s % PAGE_SIZE``.

A request that verifies k drafted tokens is k + 1 decodes here: sequences with the same pages, each one token longer than the one
before. A layer caches all new tokens before it attends, so each token sees the earlier ones, as in a step of its own. Each request
may have its own number of drafts, and prompt chunks may follow in the same step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from ..kernels.types import Quantized, SplitPlan, Stamp
from .layers import Operand, Update
from .selection_policy import SelectionPolicy

Attention = TypeVar("Attention", bound=nn.Module)

PAGE_SIZE = 64  # tokens; the page size that the public FP8 MLA cache format fixes


class Selection(NamedTuple):
    """The context positions that R queries attend to."""

    positions: torch.Tensor  # int32 [R, K], context positions, -1 for none
    # The indexer's scores of these positions, fp32 [R, K]. None if there was nothing to choose or scores were not requested.
    scores: torch.Tensor | None = None
    # The share of dense attention's mass that falls on these positions, fp32 [R, H]. None unless a SelectionPolicy asks for it.
    mass: torch.Tensor | None = None

    def mask(self, length: int) -> torch.Tensor:
        """bool [R, length], true for selected positions."""
        mask = torch.zeros(len(self.positions), length + 1, dtype=torch.bool, device=self.positions.device)
        mask.scatter_(1, torch.where(self.positions < 0, length, self.positions).long(), True)
        return mask[:, :length]


SelectionCallback = Callable[[int, torch.Tensor, Selection], None]


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of the paged caches. dtype uint8 means the FP8 byte layout; otherwise rows are plain bf16 or fp32."""

    latent: torch.Tensor  # [P, 64, 1, 656] uint8, or [P, 64, 1, kv_lora_rank + rope] bf16 / fp32
    index: torch.Tensor  # [P, 64, 1, 132] uint8 (keys of a page first, then its scales), or [P, 64, 1, 128] bf16 / fp32
    # int32 [P * 64] for the latents and for the index keys: a value per slot (kernels/cache_stamps.py), if the step writes any.
    stamps: tuple[torch.Tensor, torch.Tensor] | None = None


@dataclass(frozen=True)
class Prefill:
    """One sequence's chunk of a step, as `AttentionMetadata.prefills` yields it."""

    rows: slice  # its rows of the T new tokens
    start: int  # position of its first new token = number of tokens already cached
    length: int  # context length after this step
    context_slots: torch.Tensor  # int64 [length], slot of every context token
    policy: SelectionPolicy | None = None

    def part(self, first: int, stop: int) -> "Prefill":
        """Return its tokens `first` to `stop` as a chunk whose context ends with them."""
        rows, length = slice(self.rows.start + first, self.rows.start + stop), self.start + stop
        return Prefill(rows, self.start + first, length, self.context_slots[:length], self.policy)

    @cached_property
    def ends(self) -> torch.Tensor:
        """The context length of each token, int32 [t]."""
        return torch.arange(self.start + 1, self.length + 1, dtype=torch.int32, device=self.context_slots.device)

    @cached_property
    def starts(self) -> torch.Tensor:
        """The first position of each token's context, int32 [t]: 0."""
        return torch.zeros_like(self.ends)

    def selected_counts(self, topk: int) -> torch.Tensor | None:
        """Count the keys that each token selects, int32 [t]: its context, at most `topk`. None if all select `topk`.

        A selection lists its positions first, so kernels need not look at the columns after this count.
        """
        return None if self.start + 1 >= topk else self.ends.clamp(max=topk)

    def causal_positions(self) -> torch.Tensor:
        """Select everything: int32 [t, length], -1 after each token's own position."""
        positions = torch.arange(self.length, dtype=torch.int32, device=self.context_slots.device)
        return torch.where(positions <= positions[self.start :, None], positions, -1)


class Rows:
    """Which of a step's T rows this process computes, and what it exchanges with other ranks. Here: all rows, on one device.

    The model is written for rows, not for ranks, which have two kinds of steps (parallel/rows.py): those in which every rank
    computes all rows with its part of the weights, and those in which the rows are divided.
    """

    divided = False

    def attention_of(self, whole: Attention) -> Attention:
        """Return the attention that computes these rows: that of all heads, or of this rank's."""
        return whole

    def own(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, ...] -> the rows that this process computes."""
        return x

    def gather(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """This process's rows of several tensors -> all T rows of each."""
        return list(parts)

    def gather_inputs(self, x: Operand, *others: torch.Tensor) -> tuple[Operand, list[torch.Tensor]]:
        """Do the same for an input of projections, and for other tensors with it."""
        if isinstance(x, Quantized):
            values, scales, *others_of_all = self.gather(*x, *others)
            return Quantized(values, scales), others_of_all
        values, *others_of_all = self.gather(x, *others)
        return values, others_of_all

    def sum(self, part: torch.Tensor) -> Update:
        """All T rows of this rank's part of a sum -> this process's rows of the sum."""
        return part

    def entries(
        self, kv: torch.Tensor, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, metadata: "AttentionMetadata"
    ) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, AttentionMetadata]":
        """Return what this process writes to its caches: all T rows of kv and keys, with their angles and the step's metadata."""
        return kv, keys, cos, sin, metadata

    def select(self, choose: Callable[[Prefill], Selection], prefill: Prefill) -> Selection:
        """Select for a prompt chunk, of which `choose` takes any part."""
        return choose(prefill)

    def report(self, layer: int) -> None:
        """Called after a layer's selections: report them, if that is not done yet."""


ALL_ROWS = Rows()


@dataclass(frozen=True)
class AttentionMetadata:
    """Describes the sequences of one step to the attention layers. The runner fills the fields whose comments name no one else."""

    query_lengths: tuple[int, ...]  # new tokens of each of the B sequences; the leading `decodes` of them are 1
    context_lengths: tuple[int, ...]  # context length of each of the B sequences, new tokens included
    decodes: int  # number of leading sequences that take the decode path
    block_table: torch.Tensor  # int32 [B, pages], page ids; columns past a sequence's pages hold 0 and are never read
    lengths: torch.Tensor  # int32 [B], context_lengths as a tensor on the device
    slots: torch.Tensor  # int64 [T], cache slots of the new tokens
    logit_rows: torch.Tensor  # int64 [N], the rows of the T tokens whose logits the step returns
    max_context: int  # at least max(context_lengths[:decodes]); under a CUDA graph, the upper bound of the bucket
    # Split-KV plan of the decodes over an FP8 cache. The model fills it, once per step for all layers.
    decode_plan: SplitPlan | None = None
    # Called once per layer and per group of sequences (the decodes, each prefill) with the layer, the rows (int64 [R], on the
    # CPU) and their selection with scores.
    on_selection: SelectionCallback | None = None
    # int32 [B, L, 2, K], rows of [L, 2, K] contiguous: where each layer's selector also writes what every decode selects, positions
    # in ascending order, and the bits of their scores. Only in steps whose contexts need a selection, in place of `on_selection`.
    selections: torch.Tensor | None = None
    # Takes the logits fp32 [n, V] of the next n logit_rows. If it is given, the step may hand them out in parts, and then returns
    # none: a long text's would not fit next to the weights. It raises nothing, because ranks compute each part together.
    on_logits: Callable[[torch.Tensor], None] | None = None
    # Other selections than the indexer's: one entry for each of the B sequences, None for an ordinary one. Empty if all are
    # ordinary; never in a CUDA graph.
    policies: tuple[SelectionPolicy | None, ...] = ()
    # 2 L tensors int32 [T]: values that are written next to the new tokens' latents and index keys, layer by layer. Empty: none.
    # An observer fills it.
    stamps: tuple[torch.Tensor, ...] = ()
    # The rank whose caches hold each of the B sequences, if ranks divide sequences (parallel/rows.py).
    owners: tuple[int, ...] = ()
    rows: Rows = ALL_ROWS  # what ranks exchange; the model fills it

    def part(self, rows: slice) -> "AttentionMetadata":
        """Describe some rows of the step as a step, in which the earlier ones are cached: the sequences only, not the logits."""
        sequences, counts, contexts, row = [], [], [], 0
        for b, count in enumerate(self.query_lengths):
            first, stop = max(rows.start, row), min(rows.stop, row + count)
            row += count
            if first < stop:
                sequences.append(b)
                counts.append(stop - first)
                contexts.append(self.context_lengths[b] - (row - stop))
        some, decodes = slice(sequences[0], sequences[-1] + 1), max(min(rows.stop, self.decodes) - rows.start, 0)
        return replace(
            self,
            query_lengths=tuple(counts),
            context_lengths=tuple(contexts),
            decodes=decodes,
            max_context=self.max_context if decodes else 0,
            block_table=self.block_table[some],
            lengths=self.lengths[some],  # of decodes, which are whole
            slots=self.slots[rows],
            stamps=(),
        )

    def of_sequences(self, numbers: Sequence[int], rows: torch.Tensor) -> "AttentionMetadata":
        """Describe some of the sequences, whose new tokens are `rows` int64 [t], as a step: the sequences only, not the logits."""
        some, decodes = torch.tensor(numbers, device=rows.device), sum(b < self.decodes for b in numbers)
        return replace(
            self,
            query_lengths=tuple(self.query_lengths[b] for b in numbers),
            context_lengths=tuple(self.context_lengths[b] for b in numbers),
            decodes=decodes,
            max_context=self.max_context if decodes else 0,
            block_table=self.block_table[some],
            lengths=self.lengths[some],
            slots=self.slots[rows],
        )

    def selections_of(self, layer: int) -> torch.Tensor | None:
        """The layer's part of `selections`, int32 [B, 2, K]. The draft layer has none."""
        whole = self.selections
        return None if whole is None or layer >= whole.shape[1] else whole[: self.decodes, layer]

    def report(self, layer: int, rows: slice, selection: Selection) -> None:
        """Report what these rows of the T tokens attend to, if the step has an `on_selection`."""
        if self.on_selection is not None:
            self.on_selection(layer, torch.arange(rows.start, rows.stop), selection)

    def stamp(self, cache: LayerCache, layer: int, kind: int) -> Stamp | None:
        """Return the values that the launch writing a layer's latents (kind 0) or index keys (1) stores next to them."""
        return Stamp(cache.stamps[kind], self.stamps[2 * layer + kind]) if self.stamps and cache.stamps else None

    @cached_property
    def longest_context(self) -> int:
        """At least the length of every context."""
        return max((self.max_context, *self.context_lengths[self.decodes :]))

    @cached_property
    def of_decodes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The decodes' rows of block_table and lengths."""
        return self.block_table[: self.decodes], self.lengths[: self.decodes]

    @cached_property
    def prefills(self) -> tuple[Prefill, ...]:
        """The sequences after the decodes, in order. Made once for all layers."""
        found, row = [], self.decodes
        for b in range(self.decodes, len(self.query_lengths)):
            found.append(self._sequence(b, row))
            row += self.query_lengths[b]
        return tuple(found)

    @cached_property
    def experiments(self) -> dict[int, Prefill]:
        """The decodes with a policy, by number. They read their context as a prompt chunk does."""
        numbers = range(min(self.decodes, len(self.policies)))
        return {b: self._sequence(b, b) for b in numbers if self.policies[b] is not None}

    def _sequence(self, b: int, row: int) -> Prefill:
        new, length = self.query_lengths[b], self.context_lengths[b]
        slots = context_slots(self.block_table[b], length)
        policy = self.policies[b] if self.policies else None
        return Prefill(slice(row, row + new), length - new, length, slots, policy)


def context_slots(pages: torch.Tensor, length: int) -> torch.Tensor:
    """Return the slots (int64 [length]) of a sequence's first `length` tokens, from its row of the block table (int32 [pages])."""
    offsets = torch.arange(PAGE_SIZE, device=pages.device)
    count = -(-length // PAGE_SIZE)
    return (pages[:count].long()[:, None] * PAGE_SIZE + offsets).flatten()[:length]
