"""Steps without CUDA graphs: all steps on a CPU, and elsewhere those with prompt tokens and the first of each size."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache, SelectionCallback
from ....model.stages import is_traced
from ....model.transformer import Transformer
from ...config import MAX_DRAFT_TOKENS
from ...params import SamplingParams
from ..drafting.drafter import Drafter, StepRows, following_tokens, sampling_rows
from ..request import CachePlace, Request
from ..scheduling.batch import Batch
from ..step import Choices, ModelRunner, Share, Step
from .inputs import Inputs
from .observer import Model, Plan, StepObserver
from .selection import DecodeRecord, SelectionRecorder


@dataclass
class EagerSteps:
    """Runs a runner's steps without graphs. Its fields are the runner's."""

    model: Model
    caches: list[LayerCache]
    drafter: Drafter | None
    scratch_page: int
    observers: Sequence[StepObserver]
    data_ranks: int = 1
    _record: DecodeRecord | None = None

    def run(
        self,
        runner: ModelRunner,
        batch: Batch,
        recorder: SelectionRecorder | None,
        plans: Sequence[Plan],
        share: Share | None,
    ) -> "EagerStep":
        """Run a step. Arguments as in Runner.run."""
        assert not batch.sampled_rows
        record = None if recorder is None else self._decode_record(batch, runner.drafts.device)
        on_selection = recorder if record is None else None
        inputs = prepare(batch, runner.drafts, on_selection, self.scratch_page, self.data_ranks)
        if record is not None:
            inputs = inputs._replace(metadata=replace(inputs.metadata, selections=record.device[: batch.tokens]))
        with ExitStack() as watching:
            watched = inputs
            for each, plan in zip(self.observers, plans, strict=True):
                watched = watching.enter_context(each.step(batch, plan, watched))
            logits, hidden = self._forward(batch, watched)
        if record is not None and recorder is not None:
            recorder.decodes(record.fetch(batch.tokens))
        rows = None if hidden is None else StepRows(hidden, inputs.positions, inputs.metadata)
        return EagerStep(runner, batch, logits, recorder, rows, share, self)

    def _decode_record(self, batch: Batch, device: torch.device) -> DecodeRecord | None:
        """Return the record for a decode step's selections; None if the step reports its selections layer by layer."""
        model = self.model
        if not isinstance(model, Transformer) or any([each.by_layer for each in self.observers]) or is_traced():
            return None
        if batch.decodes < len(batch.requests) or self.data_ranks > 1:
            return None
        longest = max(start + count for start, count in zip(batch.starts, batch.counts, strict=True))
        if longest <= model.config.index_topk or any(request.policy is not None for request in batch.requests):
            return None
        rows = 1 << (batch.tokens - 1).bit_length()
        if self._record is None or len(self._record.device) < rows:
            layers, topk = model.config.num_hidden_layers, model.config.index_topk
            self._record = DecodeRecord.separate(rows, layers, topk, device)
        return self._record

    def _forward(self, batch: Batch, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The logits; the hidden states, if the draft layer follows."""
        tokens, positions, metadata, _ = inputs
        if batch.draft_tokens is None or self.drafter is None:
            return self.model.forward(tokens, positions, metadata, self.caches), None
        return self.drafter.model.forward_with_hidden(tokens, positions, metadata, self.caches)


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
        owner: EagerSteps,
    ) -> None:
        super().__init__(runner, batch, logits, selections, share=share)
        self._owner, self._rows = owner, rows

    def end(self) -> None:
        super().end()
        self._rows = None

    @torch.inference_mode()
    def _draft(self, choices: Choices | None) -> None:
        owner, table = self._owner, self.runner.drafts
        batch, rows = self.batch, self._rows
        tokens, accepted, noise = choices or self.choices()
        assert owner.drafter is not None and batch.draft_tokens is not None and rows is not None
        self._rows = None  # their memory is free for the passes' own
        if batch.draft_entries is not None:
            batch = batch.leading(batch.draft_entries)
            rows = rows.leading(batch)
        following = torch.from_numpy(following_tokens(batch)).to(table.device)
        following[rows.metadata.logit_rows] = tokens
        sampling = sampling_rows(batch, owner.scratch_page, table.device)
        drafts = table[: len(accepted), : self.batch.draft_tokens]
        with ExitStack() as watching:
            for each in owner.observers:
                watching.enter_context(each.draft(self.batch))
            owner.drafter.draft(rows, following, sampling, accepted, noise, drafts)


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
