"""The inputs of a decode step in tensors that stay in place, as CUDA graphs read them.

What changes from step to step (tokens, positions, slots, lengths, block table) is copied into them. Tokens that the previous step
has sampled, and its drafts, are read from the device, where it staged them, so the host does not wait for them.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from ....model.metadata import PAGE_SIZE, AttentionMetadata
from ...cache_check.plan import DECODE_WORDS, CheckPlan
from ...params import Request
from ..sampling.greedy import SCRATCH_PLACE
from ..scheduling.batch import Batch
from .inputs import StagedTokens


class DecodeInputs:
    """The inputs of a step of at most `batch` rows with contexts of at most `context` tokens, in tensors that stay in place.

    `staged`: where the device finds tokens that the host does not know. `checked`: with the words of a cache check.
    """

    def __init__(
        self, batch: int, context: int, scratch_page: int, staged: StagedTokens, checked: bool = False
    ) -> None:
        self.batch, self.context, self.scratch_page, self.staged = batch, context, scratch_page, staged
        device, pages = staged.device, -(-context // PAGE_SIZE)
        # The host's copies are pinned so that copying does not wait. int64 [5, B]: tokens, positions, slots, places in `staged`
        # (0: the token is the given one), and the first row of each request (-1 after the last one); then the step's places in
        # the record of selections and in the ring of greedy tokens, whether these are staged, and the words of a check.
        # int32: lengths [B], block table [B, P].
        on_gpu = device.type == "cuda"
        self._wide_words = 5 * batch + 3 + (DECODE_WORDS if checked else 0)
        self._host = torch.zeros(8 * self._wide_words + 4 * batch * (1 + pages), dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.empty_like(self._host, device=device)
        self._numbers = torch.arange(batch, device=device)
        self._copied = torch.cuda.Event() if on_gpu else None
        host_wide, host_narrow = (each.numpy() for each in self._parts(self._host))
        self._wide = host_wide[: 5 * batch].reshape(5, batch)
        self._step_words = host_wide[5 * batch : 5 * batch + 3]
        self._words = host_wide[5 * batch + 3 :]
        self._words[1:] = -1
        self._truths = 0  # in the words
        self._lengths = host_narrow[:batch]
        self._table = host_narrow[batch:].reshape(batch, pages)
        self._table[:] = scratch_page
        # Per row of the block table: id and admission of the request whose pages it holds, and how many of them.
        self._held: list[tuple[int, int, int] | None] = [None] * batch
        self._used = batch
        self.fill(Batch((), (), (), 0, ()))

    def _parts(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The int64 and the int32 words."""
        return whole[: 8 * self._wide_words].view(torch.int64), whole[8 * self._wide_words :].view(torch.int32)

    def _wide_row(self, row: int) -> torch.Tensor:
        """int64 [B] on the device."""
        return self._parts(self._device)[0][row * self.batch : (row + 1) * self.batch]

    def fill(
        self, batch: Batch, plan: CheckPlan | None = None, record_place: int = 0, greedy_place: int | None = None
    ) -> None:
        """Copy a step's inputs to the device. The rows that it does not need become padding.

        record_place: see DecodeRecord. greedy_place: see GreedyTokens; None: nobody reads the step's tokens.
        """
        if self._copied is not None:
            self._copied.synchronize()  # until the previous step's copies have left the pinned memory
        self._step_words[:] = (
            record_place,
            SCRATCH_PLACE if greedy_place is None else greedy_place,
            greedy_place is not None,
        )
        used, rows = self._used, batch.tokens
        self._used = max(used, rows)  # the rows that the next step has to pad if this one fails here
        self._write(batch)
        self._pad(rows, used)
        self._used = rows
        if plan is not None:
            used, self._truths = 3 * self._truths, len(plan.truths)
            self._words[0] = plan.step
            if used or self._truths:
                self._words[1 : 1 + max(used, 3 * self._truths)] = -1
                self._words[1 : 1 + 3 * self._truths] = plan.truths.ravel()
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._device.device))  # this thread's device may be another

    def _write(self, batch: Batch) -> None:
        """The rows of the step's tokens. Numpy takes a list of numbers in a fraction of the time of one number after the other."""
        rows, entries = batch.tokens, len(batch.requests)
        requests: Sequence[Request] = batch.requests
        positions: Sequence[int] = batch.starts
        first_rows: Sequence[int] = range(entries)
        if batch.sampled_rows:
            tokens, places = [0] * entries, [self.staged.place_of_sampled(row) for row in batch.sampled_rows]
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
            places = [
                self.staged.place_of_draft(batch.draft_rows[entry], offset - 1) if offset else places[entry]
                for entry, offset in of_rows
            ]
        slots = [
            request.pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
            for request, position in zip(requests, positions, strict=True)
        ]
        self._hold(requests)
        self._wide[:4, :rows] = tokens, positions, slots, places
        self._wide[4, :entries] = first_rows
        self._wide[4, entries:] = -1
        self._lengths[:rows] = [position + 1 for position in positions]

    def _pad(self, first: int, end: int) -> None:
        """Make padding of rows that an earlier step has used."""
        if first >= end:
            return
        self._wide[:4, first:end] = 0
        self._wide[2, first:end] = self.scratch_page * PAGE_SIZE + np.arange(first, end) % PAGE_SIZE
        self._lengths[first:end] = 1
        self._table[first:end, 0] = self.scratch_page
        self._held[first:end] = [None] * (end - first)

    def _hold(self, requests: Sequence[Request]) -> None:
        """Have the pages of each row's request in its row of the block table, and the scratch page behind them."""
        held, most = self._held, self._table.shape[1]
        for row, request in enumerate(requests):
            holding, known = (request.id, request.admission, min(len(request.pages), most)), held[row]
            if holding == known:
                continue
            count, same = holding[2], known is not None and known[:2] == holding[:2]
            done = known[2] if known is not None and same else 0
            if done < count:  # only new pages: a long context has thousands
                self._table[row, done:count] = request.pages[done:count]
                held[row] = holding
            if not same:
                self._table[row, count:] = self.scratch_page

    def read(self, into: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, AttentionMetadata]:
        """(tokens, positions, metadata) for the model. The context lengths on the host are the bucket's upper bound.

        into: int64 [B] for the tokens.
        """
        given, places = (self._wide_row(row) for row in (0, 3))
        return torch.add(given, self.staged.all[places], out=into), *self.rows()

    def rows(self) -> tuple[torch.Tensor, AttentionMetadata]:
        """(positions, metadata) alone."""
        _, narrow = self._parts(self._device)
        lengths = narrow[: self.batch]
        metadata = AttentionMetadata(
            query_lengths=(1,) * self.batch,
            context_lengths=(self.context,) * self.batch,
            decodes=self.batch,
            block_table=narrow[self.batch :].view(self.batch, -1),
            lengths=lengths,
            slots=self._wide_row(2),
            logit_rows=self._numbers,
            max_context=self.context,
        )
        return self._wide_row(1), metadata

    @property
    def check_words(self) -> torch.Tensor:
        """int64 [DECODE_WORDS] on the device, of the step's CheckPlan."""
        return self._parts(self._device)[0][5 * self.batch + 3 :]

    @property
    def record_place(self) -> torch.Tensor:
        """int64 [1] on the device, as `fill` was given it."""
        return self._parts(self._device)[0][5 * self.batch : 5 * self.batch + 1]

    @property
    def greedy_place(self) -> torch.Tensor:
        """int64 [1] on the device: the place of the step's tokens in the ring of greedy tokens."""
        return self._parts(self._device)[0][5 * self.batch + 1 : 5 * self.batch + 2]

    @property
    def stage(self) -> torch.Tensor:
        """bool [1] on the device: whether a following step may take the step's greedy tokens."""
        return self._parts(self._device)[0][5 * self.batch + 2 : 5 * self.batch + 3].view(torch.bool)[:1]

    @property
    def first_rows(self) -> torch.Tensor:
        """int64 [B] on the device: the first row of each request of the step, -1 after the last one."""
        return self._wide_row(4)

    @property
    def places(self) -> torch.Tensor:
        """int64 [B] on the device: where in `staged.all` each row finds its token; 0: it is given."""
        return self._wide_row(3)
