"""The inputs of decode steps in tensors that stay in place, for CUDA graphs."""

from collections.abc import Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata
from ...config import MAX_DRAFT_TOKENS
from ..request import Request
from ..scheduling.batch import Batch

TOKEN_PLACES = 4  # steps in the ring of chosen tokens (sampling/graph_tokens.py); at most two of them are unread
SCRATCH_PLACE = TOKEN_PLACES  # place for steps whose tokens are not read

T = TypeVar("T")


class Inputs(NamedTuple):
    """A step's arguments of the model, on the device."""

    tokens: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T]
    metadata: AttentionMetadata
    table: torch.Tensor  # int32 [B, pages]: the pages of each of the batch's requests


class StagedTokens:
    """Tokens on the device that the host does not wait for: the previous step's sampled tokens and its drafts."""

    def __init__(self, max_sequences: int, device: torch.device) -> None:
        self.device = device
        # A zero, the sampled tokens, the drafts: an input is the given token plus the one at its place, and one of them is zero.
        self.all = torch.zeros(1 + max_sequences * (1 + MAX_DRAFT_TOKENS), dtype=torch.int64, device=device)
        self.first_draft = 1 + max_sequences  # the place of the first draft; all later places are drafts', too
        self.sampled = self.all[1 : self.first_draft]  # the latest come first, the rest is left from earlier steps
        self.drafts = self.all[self.first_draft :].view(max_sequences, MAX_DRAFT_TOKENS)


class DecodeViews(NamedTuple, Generic[T]):
    """The inputs of a decode step of B rows, as parts of one buffer: one copy brings all of them to the device."""

    rows: T  # int64 [4, B]: tokens (0: it is staged), positions, slots, places in `StagedTokens.all` (0: the token is given)
    first_rows: T  # int64 [B]: the first row of each request, -1 after the last one
    record_place: T  # int64 [1], see DecodeRecord
    token_place: T  # int64 [1]: where the step's chosen tokens go in their ring
    stage: T  # int64 [1]: whether a following step may take the chosen tokens
    words: T  # int64 [W], see StepObserver
    lengths: T  # int32 [B]: context lengths
    table: T  # int32 [B, P]: the block table


def divide(buffer: torch.Tensor, batch: int, pages: int, words: int) -> DecodeViews[torch.Tensor]:
    """The parts of a buffer, uint8 [buffer_bytes(…)]."""
    wide, narrow = buffer.split([8 * (5 * batch + 3 + words), 4 * batch * (1 + pages)])
    rows, first_rows, record, token, stage, own = wide.view(torch.int64).split([4 * batch, batch, 1, 1, 1, words])
    lengths, table = narrow.view(torch.int32).split([batch, batch * pages])
    return DecodeViews(rows.view(4, batch), first_rows, record, token, stage, own, lengths, table.view(batch, pages))


def buffer_bytes(batch: int, pages: int, words: int) -> int:
    return 8 * (5 * batch + 3 + words) + 4 * batch * (1 + pages)


class DecodeInputs:
    """The inputs of a step of at most `batch` rows with contexts of at most `context` tokens, in tensors that stay in place.

    What changes from step to step is copied into them. Tokens that the previous step has sampled, and its drafts, are read from
    the device, where it staged them, so the host does not wait for them.
    """

    def __init__(
        self,
        batch: int,
        context: int,
        scratch_page: int,
        staged: StagedTokens,
        words: int = 0,
        data_ranks: int = 1,
    ) -> None:
        """staged: where the device finds tokens that the host does not know. words: int64 numbers of an observer.

        data_ranks: ranks that divide the sequences. Each has an equal part of the rows.
        """
        self.batch, self.context, self.scratch_page, self.staged = batch, context, scratch_page, staged
        self.data_ranks, self._per_rank = data_ranks, batch // data_ranks
        device, sizes = staged.device, (batch, -(-context // PAGE_SIZE), words)
        on_gpu = device.type == "cuda"
        # The host's copy is pinned so that copying does not wait.
        self._host = torch.zeros(buffer_bytes(*sizes), dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.empty_like(self._host, device=device)
        self._given: DecodeViews[np.ndarray] = DecodeViews._make([each.numpy() for each in divide(self._host, *sizes)])
        self.views = divide(self._device, *sizes)
        self._numbers = torch.arange(batch, device=device)
        self._copied = torch.cuda.Event() if on_gpu else None
        self._given.table[:] = scratch_page
        # By row of the block table: id and admission of the request whose pages it holds, and how many of them.
        self._held: list[tuple[int, int, int] | None] = [None] * batch
        self._used = [self._per_rank] * data_ranks  # the leading rows of each rank's part that are no padding
        self.fill(Batch((), (), (), 0, ()))

    @property
    def places(self) -> torch.Tensor:
        """int64 [B] on the device: where in `staged.all` each row finds its token; 0: it is given."""
        return self.views.rows[3]

    @property
    def stage(self) -> torch.Tensor:
        """bool [1] on the device: whether a following step may take the step's chosen tokens."""
        return self.views.stage.view(torch.bool)[:1]

    def fill(
        self, batch: Batch, words: np.ndarray | None = None, record_place: int = 0, token_place: int | None = None
    ) -> None:
        """Copy a step's inputs to the device. The rows that it does not need become padding.

        record_place, token_place: see DecodeViews. token_place None: no one reads the step's tokens.
        """
        if self._copied is not None:
            self._copied.synchronize()  # until the previous step's copies have left the pinned memory
        given = self._given
        given.record_place[0], given.stage[0] = record_place, token_place is not None
        given.token_place[0] = SCRATCH_PLACE if token_place is None else token_place
        used, (counts, numbers) = self._used, self._number_rows(batch)
        self._used = list(map(max, used, counts))  # the rows that the next step has to pad if this one fails here
        self._write(batch, numbers)
        for rank, (count, before) in enumerate(zip(counts, used, strict=True)):
            self._pad(rank * self._per_rank + count, rank * self._per_rank + before)
        self._used = counts
        if words is not None:
            given.words[:] = words
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._device.device))  # this thread's device may be another

    def _number_rows(self, batch: Batch) -> tuple[list[int], Sequence[int]]:
        """Return each rank's number of rows, and the row of each of the step's tokens."""
        if self.data_ranks == 1:
            return [batch.tokens], range(batch.tokens)
        counts, numbers = [0] * self.data_ranks, []
        for request in batch.requests:
            rank = request.cache.rank
            numbers.append(rank * self._per_rank + counts[rank])
            counts[rank] += 1
        return counts, numbers

    def _write(self, batch: Batch, numbers: Sequence[int]) -> None:
        """Write the rows of the step's tokens. Numpy takes a list of numbers in a fraction of the time of one number at a time."""
        entries = len(batch.requests)
        requests: Sequence[Request] = batch.requests
        positions: Sequence[int] = batch.starts
        first_rows = numbers
        if batch.sampled_rows:
            tokens, places = [0] * entries, [1 + row for row in batch.sampled_rows]
        else:
            tokens = [request.tokens[start] for request, start in zip(requests, positions, strict=True)]
            places = [0] * entries
        if batch.draft_counts:
            ends = accumulate(batch.counts)
            first_rows = [end - count for end, count in zip(ends, batch.counts, strict=True)]
            of_rows = [(entry, offset) for entry, count in enumerate(batch.counts) for offset in range(count)]
            requests = [requests[entry] for entry, _ in of_rows]
            positions = [batch.starts[entry] + offset for entry, offset in of_rows]
            tokens = [0 if offset else tokens[entry] for entry, offset in of_rows]
            firsts = [self.staged.first_draft + row * MAX_DRAFT_TOKENS for row in batch.draft_rows]
            places = [firsts[entry] + offset - 1 if offset else places[entry] for entry, offset in of_rows]
        slots = [
            request.cache.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
            for request, position in zip(requests, positions, strict=True)
        ]
        self._hold(requests, numbers)
        given = self._given
        at = slice(len(numbers)) if isinstance(numbers, range) else numbers
        given.rows[:, at] = tokens, positions, slots, places
        given.first_rows[:entries] = first_rows
        given.first_rows[entries:] = -1
        given.lengths[at] = [position + 1 for position in positions]

    def _pad(self, first: int, end: int) -> None:
        """Turn rows that an earlier step has used into padding."""
        if first >= end:
            return
        rows = self._given.rows
        rows[:, first:end] = 0
        rows[2, first:end] = self.scratch_page * PAGE_SIZE + np.arange(first, end) % PAGE_SIZE
        self._given.lengths[first:end] = 1
        self._given.table[first:end, 0] = self.scratch_page
        self._held[first:end] = [None] * (end - first)

    def _hold(self, requests: Sequence[Request], numbers: Sequence[int]) -> None:
        """Keep the pages of each row's request in its row of the block table, and the scratch page after them."""
        held, table = self._held, self._given.table
        most = table.shape[1]
        for row, request in zip(numbers, requests, strict=True):
            holding, known = (request.id, request.cache.admission, min(len(request.cache.pages), most)), held[row]
            if holding == known:
                continue
            count, same = holding[2], known is not None and known[:2] == holding[:2]
            done = known[2] if known is not None and same else 0
            if done < count:  # only new pages: a long context has thousands
                table[row, done:count] = request.cache.pages[done:count]
                held[row] = holding
            if not same:
                table[row, count:] = self.scratch_page

    def read(self, into: torch.Tensor | None = None) -> Inputs:
        """Return the model's arguments. The context lengths on the host are the bucket's upper bound.

        into: int64 [B] for the tokens.
        """
        given, places = self.views.rows[0], self.places
        positions, metadata = self.rows()
        return Inputs(torch.add(given, self.staged.all[places], out=into), positions, metadata, metadata.block_table)

    def rows(self) -> tuple[torch.Tensor, AttentionMetadata]:
        """(positions, metadata) without the tokens."""
        _, positions, slots, _ = self.views.rows
        return positions, AttentionMetadata(
            query_lengths=(1,) * self.batch,
            context_lengths=(self.context,) * self.batch,
            decodes=self.batch,
            block_table=self.views.table,
            lengths=self.views.lengths,
            slots=slots,
            # In the batch's order; the rows after the batch's are never read.
            logit_rows=self._numbers if self.data_ranks == 1 else self.views.first_rows.clamp(min=0),
            max_context=self.context,
            owners=tuple(row // self._per_rank for row in range(self.batch)) if self.data_ranks > 1 else (),
        )


def pinned(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host, in memory that the device can reach."""
    if device.type != "cuda":
        return torch.empty(shape, dtype=dtype)
    with torch.cuda.device(device):  # which the memory then belongs to
        return torch.empty(shape, dtype=dtype, pin_memory=True)


def seen_by(device: torch.device, host: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor of the device, whose kernels can write to pinned memory of the host."""
    if device.type != "cuda":
        return host
    seen = same_memory(host, device)
    assert seen.data_ptr() == host.data_ptr(), "pinned memory that belongs to another device"
    return seen


def same_memory(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the same memory as a tensor of a GPU, which does not keep it from being freed."""
    if not tensor.numel():
        return tensor.to(device)
    # The pointers of this interface may be to all that the device can reach.
    interface = {
        "shape": tuple(tensor.shape),
        "strides": tuple(each * tensor.itemsize for each in tensor.stride()),
        "typestr": {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}[tensor.itemsize],
        "data": (tensor.data_ptr(), False),
        "version": 3,
    }
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device=device).view(tensor.dtype)
