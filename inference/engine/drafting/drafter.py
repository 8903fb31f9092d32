"""Drafts for speculative decoding: the passes of the MTP layer that follow a step of the main model.

The first pass goes over the step's rows, without the prompts whose answers get no drafts. It takes each row with the token that
follows it, and so writes the layer's entries. The logits of a request's last accepted row give its first draft. Each further pass
has one row a request: the draft and the hidden state of the pass before. Its entries lie after the accepted tokens, where the
next step writes over them. Nothing here waits for the device: how many drafts were accepted is read from a tensor.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata, LayerCache
from ....model.transformer import Transformer
from ..sampling.noise import DraftNoise
from ..scheduling.batch import Batch


@dataclass(frozen=True)
class StepRows:
    """A step that has run, as far as drafting needs it."""

    hidden: torch.Tensor  # [T, D], after the final norm
    positions: torch.Tensor  # int64 [T]
    metadata: AttentionMetadata


@dataclass(frozen=True)
class SamplingRows:
    """The M requests that sample in a step, on the device."""

    first_rows: torch.Tensor  # int64 [M]: the first row of each that has logits
    table: torch.Tensor  # int32 [M, pages]: their pages; after them a page that belongs to no request
    longest: int  # at least the context of each in every pass


def following_tokens(batch: Batch) -> np.ndarray:
    """int64 [T]: the token after each of the step's rows, 0 for rows with logits."""
    parts: list[list[int]] = []
    for request, start, count, logits in zip(
        batch.requests, batch.starts, batch.counts, batch.logit_counts, strict=True
    ):
        parts += [list(request.tokens[start + 1 : start + count - logits + 1]), [0] * logits]
    return np.array([token for part in parts for token in part], dtype=np.int64)


def first_logit_rows(batch: Batch) -> list[int]:
    """The first row with logits of each request that samples."""
    ends = np.cumsum(batch.counts).tolist()
    return [end - logits for end, logits in zip(ends, batch.logit_counts, strict=True) if logits]


def longest_context(batch: Batch) -> int:
    """Return the longest context of a sampling request in the last pass after the step."""
    rows = zip(batch.starts, batch.counts, batch.logit_counts, strict=True)
    longest = max((start + count for start, count, logits in rows if logits), default=0)
    return longest + max((batch.draft_tokens or 1) - 1, 0)


def sampling_rows(batch: Batch, scratch_page: int, device: torch.device) -> SamplingRows:
    """The requests that sample in a step. Passes past a request's pages write to the scratch page."""
    longest = longest_context(batch)
    table = np.full((len(batch.sampling), -(-longest // PAGE_SIZE)), scratch_page, dtype=np.int32)
    for row, request in enumerate(batch.sampling):
        pages = request.cache.pages[: table.shape[1]]
        table[row, : len(pages)] = pages
    first = torch.tensor(first_logit_rows(batch), dtype=torch.int64)
    return SamplingRows(first.to(device), torch.from_numpy(table).to(device), longest)


class Drafter:
    """Runs the MTP layer after a step: once over the step's rows, then once for each draft but the first."""

    def __init__(self, model: Transformer, cache: LayerCache) -> None:
        self.model, self.cache = model, cache

    def draft(
        self,
        step: StepRows,
        following: torch.Tensor,
        sampling: SamplingRows,
        accepted: torch.Tensor,
        noise: DraftNoise,
        drafts: torch.Tensor,
    ) -> None:
        """All passes after a step: fill the layer's entries of its rows, and drafts int64 [M, k].

        following: int64 [T], the token after each row. accepted: int64 [M], after how many rows with logits each request goes on.
        """
        passes = drafts.shape[1]
        rows = sampling.first_rows + accepted if passes else sampling.first_rows[:0]
        # Experiments and recordings are about the main model's layers.
        metadata = replace(step.metadata, logit_rows=rows, on_selection=None, policies=())
        logits, hidden = self.model.draft(following, step.hidden, step.positions, metadata, self.cache)
        if not drafts.numel():
            return
        hidden, further = hidden[rows], _further_passes(sampling, step.positions[rows], passes - 1)
        for number in range(passes):
            tokens = noise.choose(logits, accepted, number + 1)
            drafts[:, number] = tokens
            if number + 1 < passes:
                positions, metadata = further[number]
                logits, hidden = self.model.draft(tokens, hidden, positions, metadata, self.cache)


def _further_passes(
    sampling: SamplingRows, positions: torch.Tensor, count: int
) -> list[tuple[torch.Tensor, AttentionMetadata]]:
    """Return each pass's positions int64 [M], one after the earlier pass's, and its metadata."""
    if not count:
        return []
    requests, longest, table = len(positions), sampling.longest, sampling.table
    numbers = torch.arange(max(count + 1, requests), device=positions.device)
    later = positions + numbers[1 : count + 1, None]  # [passes, M]
    pages = table[numbers[:requests], later // PAGE_SIZE]
    slots = torch.add(later % PAGE_SIZE, pages, alpha=PAGE_SIZE)
    lengths = (later + 1).int()
    passes = []
    for number in range(count):
        metadata = AttentionMetadata(
            query_lengths=(1,) * requests,
            context_lengths=(longest,) * requests,
            decodes=requests,
            block_table=table,
            lengths=lengths[number],
            slots=slots[number],
            logit_rows=numbers[:requests],
            max_context=longest,
        )
        passes.append((later[number], metadata))
    return passes
