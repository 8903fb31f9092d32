"""Steps without CUDA graphs: all of a CPU or of a model that cannot be captured, and those that decode_graph.py has no graph for.

On a GPU these are steps with prompt tokens or a selection policy, traced ones, those that an observer keeps out of graphs, and
those that no bucket holds.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata, SelectionCallback
from ...config import MAX_DRAFT_TOKENS
from ...params import SamplingParams
from ..drafting.drafter import Drafter, StepRows, following_tokens, sampling_rows
from ..request import CachePlace, Request
from ..scheduling.batch import Batch
from ..step import Choices, ModelRunner, Share, Step
from .inputs import Inputs
from .observer import StepObserver
from .selection import SelectionRecorder


class EagerStep(Step):
    """A step without a graph."""

    def __init__(
        self,
        runner: ModelRunner,
        batch: Batch,
        logits: torch.Tensor,
        selections: SelectionRecorder | None,
        rows: StepRows | None,
        share: Share | None,
        drafter: Drafter | None,
        observers: Sequence[StepObserver],
        scratch_page: int,
    ) -> None:
        super().__init__(runner, batch, logits, selections, share=share)
        self._rows, self._drafter, self._observers, self._scratch_page = rows, drafter, observers, scratch_page

    def end(self) -> None:
        super().end()
        self._rows = None

    @torch.inference_mode()
    def _draft(self, choices: Choices | None) -> None:
        batch, rows, table = self.batch, self._rows, self.runner.drafts
        tokens, accepted, noise = choices or self.choices()
        assert self._drafter is not None and batch.draft_tokens is not None and rows is not None
        self._rows = None  # their memory is free for the passes' own
        if batch.draft_entries is not None:
            batch = batch.leading(batch.draft_entries)
            kept = slice(0, batch.tokens)
            rows = StepRows(rows.hidden[kept], rows.positions[kept], rows.metadata.part(kept))
        following = torch.from_numpy(following_tokens(batch)).to(table.device)
        following[rows.metadata.logit_rows] = tokens
        sampling = sampling_rows(batch, self._scratch_page, table.device)
        drafts = table[: len(accepted), : self.batch.draft_tokens]
        with ExitStack() as watching:
            for each in self._observers:
                watching.enter_context(each.draft(self.batch))
            self._drafter.draft(rows, following, sampling, accepted, noise, drafts)


def prepare(
    batch: Batch,
    drafts: torch.Tensor,
    on_selection: SelectionCallback | None = None,
    scratch_page: int = 0,
    data_ranks: int = 1,
) -> Inputs:
    """Make the model's inputs for a batch. drafts: int64 [rows, drafts] on the device, the table of drafts to verify.

    If sequences are divided among `data_ranks`, those without any compute a token on the scratch page, so that no kernel has an
    empty input. These tokens come last, as prompts.
    """
    device = drafts.device
    owners = [request.cache.rank for request in batch.requests]
    idle = [rank for rank in range(data_ranks) if rank not in owners]
    if idle:
        batch = _padded(batch, idle, scratch_page)
        owners += idle
    lengths = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
    given = batch.draft_counts or (0,) * len(lengths)
    table = np.zeros((len(lengths), max(-(-length // PAGE_SIZE) for length in lengths)), dtype=np.int32)
    tokens, positions, slots, logit_rows = [], [], [], []
    row = 0
    for b, (request, start, length) in enumerate(zip(batch.requests, batch.starts, lengths, strict=True)):
        pages = request.cache.pages[: -(-length // PAGE_SIZE)]  # the request may hold more, for the rest of its prompt
        table[b, : len(pages)] = pages
        position = np.arange(start, length)
        tokens.append([*request.tokens[start : length - given[b]], *(0,) * given[b]])
        positions.append(position)
        slots.append(table[b, position // PAGE_SIZE].astype(np.int64) * PAGE_SIZE + position % PAGE_SIZE)
        row += length - start
        logit_rows.append(np.arange(row - batch.logit_counts[b], row))

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    new_tokens, new_positions, new_slots = (tensor(np.concatenate(each)) for each in (tokens, positions, slots))
    block_table = row_table = tensor(table)
    decode_rows, contexts = batch.decode_rows, lengths
    policies = [request.policy for request in batch.requests]
    if batch.draft_counts:
        rows, sources = draft_places(batch)
        new_tokens[tensor(rows)] = drafts.flatten()[tensor(sources)]
        # Each row of a decode is a sequence of its own, which ends with it.
        contexts = [*(np.concatenate(positions)[:decode_rows] + 1).tolist(), *lengths[batch.decodes :]]
        sequences = np.repeat(
            np.arange(len(lengths)), [*batch.counts[: batch.decodes], *(1,) * len(lengths[batch.decodes :])]
        )
        row_table, policies = tensor(table[sequences]), [policies[b] for b in sequences]
    metadata = AttentionMetadata(
        query_lengths=(1,) * decode_rows + batch.counts[batch.decodes :],
        context_lengths=tuple(contexts),
        decodes=decode_rows,
        block_table=row_table,
        lengths=tensor(np.array(contexts, dtype=np.int32)),
        slots=new_slots,
        logit_rows=tensor(np.concatenate(logit_rows)),
        max_context=max(lengths[: batch.decodes], default=0),
        on_selection=on_selection,
        on_logits=batch.take_logits,
        policies=tuple(policies) if any(policies) else (),
        owners=tuple(owners) if data_ranks > 1 else (),
    )
    return Inputs(new_tokens, new_positions, metadata, block_table)


def _padded(batch: Batch, ranks: Sequence[int], page: int) -> Batch:
    """Return the step with a token in `page` on each of these ranks, after the others."""
    places = [CachePlace([page], rank) for rank in ranks]
    padding = [Request(-1, (0,), SamplingParams(), max_tokens=0, seed=0, cache=place) for place in places]
    zeros, ones = (0,) * len(ranks), (1,) * len(ranks)
    return replace(
        batch,
        requests=(*batch.requests, *padding),
        starts=batch.starts + zeros,
        counts=batch.counts + ones,
        logit_counts=batch.logit_counts + zeros,
    )


def draft_places(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Return a step's rows whose tokens are drafts, and the drafts' places in the flattened table of drafts, int64 [n] each."""
    rows: list[int] = []
    sources: list[int] = []
    end = 0
    for count, drafts, row in zip(batch.counts, batch.draft_counts, batch.draft_rows, strict=True):
        end += count
        rows += range(end - drafts, end)
        first = row * MAX_DRAFT_TOKENS
        sources += range(first, first + drafts)
    return np.array(rows, dtype=np.int64), np.array(sources, dtype=np.int64)
