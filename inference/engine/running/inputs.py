"""A batch as the tensors that the model takes."""

from typing import NamedTuple

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata, SelectionCallback
from ..limits import MAX_DRAFT_TOKENS
from ..scheduling.batch import Batch


class Inputs(NamedTuple):
    """A step's arguments of the model, on the device."""

    tokens: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T]
    metadata: AttentionMetadata
    table: torch.Tensor  # int32 [B, pages]: the pages of each of the batch's requests


class StagedTokens:
    """Tokens on the device that the host does not wait for: those that the previous step has sampled, and its drafts."""

    def __init__(self, max_sequences: int, device: torch.device) -> None:
        self.device = device
        # A zero, the sampled tokens, the drafts: an input is the given token plus the one at its place, and one of them is zero.
        self.all = torch.zeros(1 + max_sequences * (1 + MAX_DRAFT_TOKENS), dtype=torch.int64, device=device)
        self.first_draft = 1 + max_sequences  # the place of the first draft; all later places are drafts', too
        self.sampled = self.all[1 : self.first_draft]  # the latest come first, the rest is left from earlier steps
        self.drafts = self.all[self.first_draft :].view(max_sequences, MAX_DRAFT_TOKENS)

    def place_of_sampled(self, row: int) -> int:
        """In `all`, of sampled[row]."""
        return 1 + row

    def place_of_draft(self, row: int, number: int) -> int:
        """In `all`, of drafts[row, number]."""
        return self.first_draft + row * MAX_DRAFT_TOKENS + number


def prepare(
    batch: Batch,
    device: torch.device,
    drafts: torch.Tensor | None = None,
    on_selection: SelectionCallback | None = None,
) -> Inputs:
    """drafts: int64 [rows, drafts] on the device, from which the batch takes the tokens that it verifies."""
    lengths = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
    given = batch.draft_counts or (0,) * len(lengths)
    table = np.zeros((len(lengths), max(-(-length // PAGE_SIZE) for length in lengths)), dtype=np.int32)
    tokens, positions, slots, logit_rows = [], [], [], []
    row = 0
    for b, (request, start, length) in enumerate(zip(batch.requests, batch.starts, lengths, strict=True)):
        pages = request.pages[: -(-length // PAGE_SIZE)]  # the request may hold more, for the rest of its prompt
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
        assert drafts is not None
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
        policies=tuple(policies) if any(policies) else (),
    )
    return Inputs(new_tokens, new_positions, metadata, block_table)


def draft_places(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """int64 [n] each: the rows of a step whose tokens are drafts, and where those lie in the flattened table of drafts."""
    rows: list[int] = []
    sources: list[int] = []
    end = 0
    for count, drafts, row in zip(batch.counts, batch.draft_counts, batch.draft_rows, strict=True):
        end += count
        rows += range(end - drafts, end)
        first = row * MAX_DRAFT_TOKENS
        sources += range(first, first + drafts)
    return np.array(rows, dtype=np.int64), np.array(sources, dtype=np.int64)
