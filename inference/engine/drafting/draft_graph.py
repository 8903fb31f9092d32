"""The MTP layer's passes after a step of decodes, as CUDA graphs: one for each bucket of rows, requests and drafts.

A graph reads tensors of the step's own graph: positions, slots, block table and hidden states.
"""

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

import torch

from ...config import MAX_DRAFT_TOKENS
from ..running.captured_step import CapturedStep
from ..running.decode_graph import Bucket, DecodeGraphs, batch_buckets
from ..sampling.noise import DraftNoise
from ..scheduling.batch import Batch
from .drafter import Drafter, SamplingRows, StepRows


class DraftInputs:
    """A step's Choices, in tensors that stay in place: of at most `rows` rows of `requests` requests."""

    def __init__(self, rows: int, requests: int, random: bool, device: torch.device) -> None:
        self.following = torch.zeros(rows, dtype=torch.int64, device=device)
        self.accepted = torch.zeros(requests, dtype=torch.int64, device=device)
        seeds, positions = (torch.zeros_like(self.accepted) for _ in range(2))
        self.noise = DraftNoise(random, torch.zeros(requests, dtype=torch.float64, device=device), seeds, positions)

    def fill(self, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        self.following[: len(sampled)] = sampled
        self.accepted[: len(accepted)] = accepted
        if noise.random:
            for place, values in zip(self.noise[1:], noise[1:], strict=True):
                place[: len(values)] = values


class DraftGraphs:
    """Runs the MTP layer after steps of `graphs`, captured not right after the step, which would keep other answers waiting."""

    def __init__(self, drafter: Drafter, graphs: DecodeGraphs) -> None:
        self._drafter, self._graphs = drafter, graphs
        self._requests = batch_buckets(len(graphs.staged.sampled))
        # By the step's bucket, whose tensors the graph reads (steps that record have their own), its sizes, and whether the
        # drafts are random.
        self._sampled: dict[tuple[Bucket, _Size, bool], tuple[DraftInputs, CapturedStep[None]]] = {}
        self._greedy: dict[tuple[Bucket, _Size], CapturedStep[None]] = {}
        self._tables: dict[tuple[int, int], torch.Tensor] = {}

    def free(self) -> None:
        """Free all graphs. Passes that come after would capture new ones."""
        for passes in (*self._greedy.values(), *(passes for _, passes in self._sampled.values())):
            passes.free()
        self._sampled.clear()
        self._greedy.clear()

    def run(
        self, batch: Batch, bucket: Bucket, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise
    ) -> None:
        """Draft after a step that `bucket` has run. Tensors as in Choices."""
        key = (bucket, self._size(batch), noise.random)
        if key not in self._sampled:
            inputs = DraftInputs(bucket.inputs.batch, key[1].requests, noise.random, self._graphs.device)
            draft = partial(self._passes(bucket, key[1]).run, inputs.following, inputs.accepted, inputs.noise)
            self._sampled[key] = (inputs, CapturedStep(draft, self._graphs.capture))
        inputs, passes = self._sampled[key]
        inputs.fill(sampled, accepted, noise)
        passes.run(may_capture=not bucket.is_new)

    def run_greedily(self, batch: Batch, bucket: Bucket) -> None:
        """Draft after a step that `bucket` has run and whose requests take the tokens that it has found."""
        key = (bucket, self._size(batch))
        if key not in self._greedy:
            self._greedy[key] = CapturedStep(self._passes(*key).run_greedily, self._graphs.capture)
        self._greedy[key].run(may_capture=not bucket.is_new)

    def _passes(self, bucket: Bucket, size: "_Size") -> "_Passes":
        # After the last column comes the scratch page, for positions past the bucket's contexts. Only one graph runs at a time.
        shape = (size.requests, bucket.inputs.views.table.shape[1] + 1)
        if shape not in self._tables:
            page = bucket.inputs.scratch_page
            self._tables[shape] = torch.full(shape, page, dtype=torch.int32, device=self._graphs.device)
        return _Passes(self._drafter, bucket, size, self._tables[shape])

    def _size(self, batch: Batch) -> "_Size":
        return _Size(self._requests[bisect_left(self._requests, len(batch.sampling))], batch.most_drafts)


class _Size(NamedTuple):
    """The sizes that a graph is captured for."""

    requests: int  # at most
    drafts: int  # the most that the step verifies or makes, so that steps which verify as many share a graph

    @property
    def is_full(self) -> bool:
        """Tell whether no step has fewer requests."""
        return self.requests <= 2


class _Passes:
    """The passes after a step, as they are captured."""

    def __init__(self, drafter: Drafter, bucket: Bucket, size: _Size, table: torch.Tensor) -> None:
        """bucket: has run the step, whose tensors the passes read. table: int32 [requests, pages + 1] for their use."""
        self._drafter, self._size, self._table = drafter, size, table
        self._bucket, self._step, self._greedy = bucket, bucket.inputs, bucket.greedy

    def run_greedily(self) -> None:
        first_rows = self._step.views.first_rows[: self._size.requests]
        accepted = first_rows  # which nothing reads without drafts
        if self._size.drafts:
            rows = first_rows if self._size.is_full else first_rows.clamp(min=0)
            accepted = self._greedy.count_accepted(rows, self._step.places)
        self.run(self._greedy.tokens, accepted, DraftNoise(False, accepted, accepted, accepted))

    def run(self, following: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        step, (requests, count) = self._step, self._size
        positions, metadata = step.rows()
        assert self._bucket.hidden is not None
        rows, table = StepRows(self._bucket.hidden, positions, metadata), self._table
        first_rows = step.views.first_rows[:requests]
        if count:
            if self._size.is_full:
                pages = metadata.block_table[first_rows] if requests > 1 else metadata.block_table[:1]
            else:
                present = first_rows >= 0
                first_rows, accepted = first_rows.clamp(min=0), accepted * present
                pages = torch.where(present[:, None], metadata.block_table[first_rows], step.scratch_page)
            table[:, :-1] = pages
        sampling = SamplingRows(first_rows, table, step.context + MAX_DRAFT_TOKENS)
        drafts = step.staged.drafts[:requests, :count]
        self._drafter.draft(rows, following, sampling, accepted, noise, drafts)
