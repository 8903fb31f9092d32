"""The rows of a step on several ranks: all of them on every rank, or divided among the ranks.

Decode steps are replicated: every rank computes all rows, with its part of the heads, and sums follow attention and the MLP. Steps
with prompt tokens are divided, which is called context parallelism: a rank owns T / n neighbouring rows from the embedding to the
last norm and attends with all heads, whose weights stand whole on every rank. Then a layer exchanges three things. The latents and
index keys of all rows go to every rank, so that all caches stay equal. The inputs of the MLP go to every rank, because experts are
divided. And each rank receives the sums of its own rows.

A step with prompt tokens is replicated, too, if its bits must not depend on the chunk (deterministic mode), if an experiment
chooses what it selects, or if it is short.

A job may divide sequences instead (`--attention data`, known as data-parallel attention). Then each rank owns the rows of the
sequences in its caches, in all steps, and no cache entries are exchanged.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..layers import Compute, Operand, RMSNorm, Update
from ..metadata import Attention, AttentionMetadata, Prefill, Rows, Selection
from ..moe import DEFERRED_TOKENS
from .collectives import Ranks

_LEAST_ROWS = 16  # of each rank in a divided step; with fewer, reading all heads' weights takes longer than the sums


class RankRows:
    """Decides how ranks compute each step."""

    def __init__(self, ranks: Ranks, compute: Compute, topk: int, own_heads: Mapping[Any, Any], divides: bool) -> None:
        """own_heads: from the attention of all heads to that of this rank's, where a rank holds both. divides: see Plan."""
        self._ranks, self._topk, self._divides = ranks, topk, divides and not compute.deterministic
        self._replicated = ReplicatedRows(ranks, compute, own_heads)

    def of(self, metadata: AttentionMetadata, cos: torch.Tensor, sin: torch.Tensor) -> AttentionMetadata:
        """Describe this rank's rows of a step; cos, sin [T, rope/2]."""
        decodes, count = metadata.decodes, sum(metadata.query_lengths)
        has_prompt = decodes < len(metadata.query_lengths)
        if self._divides and has_prompt and count >= _LEAST_ROWS * self._ranks.size and not metadata.policies:
            return DividedRows(self._ranks, metadata, cos, sin, self._topk).part()
        return replace(metadata, rows=self._replicated)


class ReplicatedRows(Rows):
    """All rows, of which a rank computes a part of each sum."""

    def __init__(self, ranks: Ranks, compute: Compute, own_heads: Mapping[Any, Any]) -> None:
        self._ranks, self._compute, self._own_heads = ranks, compute, own_heads

    def attention_of(self, whole: Attention) -> Attention:
        return self._own_heads.get(whole, whole)

    def sum(self, part: torch.Tensor) -> Update:
        if self._compute.quantized and len(part) <= DEFERRED_TOKENS and self._ranks.fuses_norm(part):
            return PendingSum(part, self._ranks)
        return self._ranks.all_reduce(part, self._compute.deterministic)

    def select(self, choose: Callable[[Prefill], Selection], prefill: Prefill) -> Selection:
        """Select for this rank's part of the chunk, and gather all ranks' parts: ranks do not split the indexer's heads."""
        count, ranks = prefill.length - prefill.start, self._ranks
        per_rank = -(-count // ranks.size)
        # A rank without tokens of its own repeats the chunk's last token.
        first = min(per_rank * ranks.rank, count - 1)
        selection = choose(prefill.part(first, max(min(per_rank * (ranks.rank + 1), count), first + 1)))
        parts = [each for each in selection[:2] if each is not None]
        return Selection(*ranks.gather_rows(parts, per_rank, slice(count)))


class PendingSum(NamedTuple):
    """This rank's part [T, D] of a sublayer's output."""

    part: torch.Tensor
    ranks: Ranks

    def sum(self, compute: Compute) -> torch.Tensor:
        """The sum of all ranks' parts, [T, D]."""
        return self.ranks.all_reduce(self.part, compute.deterministic)

    def norm(self, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor, Operand]:
        """Return the same as `RMSNorm.with_operand` for the residual stream [T, D] and the sum."""
        return self.ranks.all_reduce_norm(self.part, residual, norm.weight, norm.eps, norm.compute.ue8m0)


class DividedRows(Rows):
    """This rank's rows: T / n that follow each other, fewer on the last rank."""

    divided = True

    def __init__(self, ranks: Ranks, step: AttentionMetadata, cos: torch.Tensor, sin: torch.Tensor, topk: int) -> None:
        self._ranks, self._step, self._cos, self._sin, self._topk = ranks, step, cos, sin, topk
        count = sum(step.query_lengths)
        self._per_rank = -(-count // ranks.size)
        first = min(self._per_rank * ranks.rank, count)
        self._first, self._own_count = first, min(self._per_rank, count - first)
        # This rank's rows among the step's, and the step's among those that ranks gather.
        self._own: slice | torch.Tensor = slice(first, first + self._own_count)
        self._kept: slice | torch.Tensor = slice(count)
        self._selected: list[tuple[int, Selection]] = []  # of the present layer, by their first row
        self._runs = [] if step.on_selection is None else _runs(step.logit_rows.tolist())

    def part(self) -> AttentionMetadata:
        """Describe these rows. Not kept: in a cycle of references, the step's tensors would outlive it."""
        return replace(self._own_step(), rows=self, on_selection=self._keep if self._runs else None)

    def _own_step(self) -> AttentionMetadata:
        return self._step.part(slice(self._first, self._first + self._own_count))

    def own(self, x: torch.Tensor) -> torch.Tensor:
        return x[self._own]

    def gather(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        return self._ranks.gather_rows(parts, self._per_rank, self._kept)

    def sum(self, part: torch.Tensor) -> Update:
        return self._ranks.reduce_scatter(part, self._per_rank)[: self._own_count]

    def entries(
        self, kv: torch.Tensor, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, metadata: AttentionMetadata
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, AttentionMetadata]:
        kv, keys = self.gather(kv, keys)
        return kv, keys, self._cos, self._sin, self._step

    def _keep(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        self._selected.append((self._first + int(rows[0]), selection))

    def report(self, layer: int) -> None:
        """Report on all ranks what was selected for the rows with logits; a recorder takes no others."""
        on_selection = self._step.on_selection
        if on_selection is None or not self._runs:
            return
        found = torch.zeros(len(self._step.logit_rows), 2, self._topk, dtype=torch.int32, device=self._cos.device)
        for begin, (positions, scores, _) in self._selected:
            width = positions.shape[1]
            for place, row, count in self._runs:
                first, stop = max(row, begin), min(row + count, begin + len(positions))
                if first < stop:
                    here, there = slice(first - begin, stop - begin), slice(place + first - row, place + stop - row)
                    found[there, 0] = -1
                    found[there, 0, :width] = positions[here]
                    if scores is not None:
                        found[there, 1, :width] = scores[here].view(torch.int32)
        self._selected.clear()
        found = self._ranks.all_reduce(found)  # a row is zero on all ranks but one
        for place, row, count in self._runs:
            positions, scores = found[place : place + count].unbind(1)
            on_selection(layer, torch.arange(row, row + count), Selection(positions, scores.view(torch.float32)))


class SequenceRows(DividedRows):
    """The rows of the sequences in this rank's caches. Every rank gathers as many as the rank with the most has.

    Ranks with equal numbers of rows, each rank's after those of the one before, need no lists of rows, as in CUDA graphs.
    """

    def __init__(self, ranks: Ranks, step: AttentionMetadata, cos: torch.Tensor, sin: torch.Tensor, topk: int) -> None:
        super().__init__(ranks, step, cos, sin, topk)
        owners = torch.tensor(step.owners).repeat_interleave(torch.tensor(step.query_lengths))
        counts = owners.bincount(minlength=ranks.size)
        most, places = int(counts.max()), torch.empty_like(owners)
        firsts = torch.arange(ranks.size) * most - (counts.cumsum(0) - counts)
        places[owners.argsort(stable=True)] = torch.arange(len(owners)) + firsts.repeat_interleave(counts)
        self._numbers = (owners == ranks.rank).nonzero().flatten()  # of this rank's rows
        self._per_rank, self._own_count = most, len(self._numbers)
        self._listed = not torch.equal(places, torch.arange(ranks.size * most))
        if self._listed:
            self._own, self._kept = self._numbers.to(cos.device), places.to(cos.device)

    def _own_step(self) -> AttentionMetadata:
        if not self._listed:
            return super()._own_step()
        assert isinstance(self._own, torch.Tensor)
        sequences = [b for b, owner in enumerate(self._step.owners) if owner == self._ranks.rank]
        return self._step.of_sequences(sequences, self._own)

    def sum(self, part: torch.Tensor) -> Update:
        if self._listed:
            padded = part.new_zeros(self._ranks.size * self._per_rank, part.shape[1])
            padded[self._kept] = part
            part = padded
        return super().sum(part)

    entries = Rows.entries  # the caches hold only the own sequences

    def _keep(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        for place, first, count in _runs(self._numbers[rows].tolist()):
            positions, scores = (None if each is None else each[place : place + count] for each in selection[:2])
            assert positions is not None
            self._selected.append((first, Selection(positions, scores)))


def _runs(rows: list[int]) -> list[tuple[int, int, int]]:
    """Divide ascending numbers into runs without gaps: (place of the first, the first, how many)."""
    starts = [i for i, row in enumerate(rows) if i == 0 or row != rows[i - 1] + 1]
    return [(i, rows[i], j - i) for i, j in zip(starts, [*starts[1:], len(rows)], strict=True)]
