"""The MTP layer's passes after a step of decodes, as CUDA graphs: one for each bucket of rows and requests and number of drafts.

A graph reads what the step's own graph has left in place: positions, slots, block table and hidden states.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import torch

from .batch import Batch
from .decode_graph import DecodeGraphs, batch_buckets
from .decode_inputs import DecodeInputs
from .drafting import Drafter, SamplingRows, StepRows
from .greedy import GreedyTokens
from .noise import DraftNoise
from .speculation import MAX_DRAFT_TOKENS


class DraftInputs:
    """What `Runner.draft` is given, in tensors that stay in place: of at most `rows` rows of `requests` requests."""

    def __init__(self, rows: int, requests: int, random: bool, device: torch.device) -> None:
        self.following = torch.zeros(rows, dtype=torch.int64, device=device)
        self.accepted = torch.zeros(requests, dtype=torch.int64, device=device)
        seeds, positions = (torch.zeros_like(self.accepted) for _ in range(2))
        self.noise = DraftNoise(random, torch.zeros(requests, dtype=torch.float64, device=device), seeds, positions)

    def fill(self, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        """Copy a step's, on the device."""
        self.following[: len(sampled)] = sampled
        self.accepted[: len(accepted)] = accepted
        if noise.random:
            for place, values in zip(self.noise[1:], noise[1:], strict=True):
                place[: len(values)] = values


class DraftGraphs:
    """Runs the MTP layer after steps of `graphs`. On a CPU the same passes run without a graph."""

    def __init__(self, drafter: Drafter, graphs: DecodeGraphs) -> None:
        self._drafter, self._graphs = drafter, graphs
        self._requests = batch_buckets(len(graphs.staged.sampled))
        # By the inputs of the step's bucket, which the graph reads (steps that record have their own), the bucket of requests, the
        # number of drafts, and whether they are random.
        self._captured: dict[tuple[DecodeInputs, int, int, bool], tuple[DraftInputs, Callable[[], None]]] = {}
        self._captured_greedy: dict[tuple[DecodeInputs, int, int], Callable[[], None]] = {}

    def free(self) -> None:
        """Free all graphs. Passes that come after would capture new ones."""
        self._captured.clear()
        self._captured_greedy.clear()

    def run(self, batch: Batch, sampled: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise) -> None:
        """As `Runner.draft`, after a step that `graphs` has run."""
        step, count = self._graphs.inputs, batch.draft_tokens or 0
        requests = self._requests[bisect_left(self._requests, len(accepted))]
        key = (step, requests, count, noise.random)
        known = self._captured.get(key)
        inputs = DraftInputs(step.batch, requests, noise.random, step.staged.device) if known is None else known[0]
        inputs.fill(sampled, accepted, noise)
        if known is None:
            passes = partial(self._passes, step, inputs, count)
            known = self._captured[key] = (inputs, self._graphs.capture(passes))
        known[1]()

    def run_greedily(self, batch: Batch) -> None:
        """As `Runner.draft_greedily`, after a step that `graphs` has run."""
        step, count = self._graphs.inputs, batch.draft_tokens or 0
        requests = self._requests[bisect_left(self._requests, len(batch.sampling))]
        replay = self._captured_greedy.get((step, requests, count))
        if replay is None:
            passes = partial(self._greedy_passes, step, self._graphs.greedy, requests, count)
            replay = self._captured_greedy[step, requests, count] = self._graphs.capture(passes)
        replay()

    def _greedy_passes(self, step: DecodeInputs, greedy: GreedyTokens, requests: int, count: int) -> None:
        first_rows = step.first_rows[:requests]
        accepted = (
            greedy.count_accepted(first_rows.clamp(min=0), step.places) if count else torch.zeros_like(first_rows)
        )
        noise = DraftNoise(False, accepted.double(), accepted, accepted)
        self._run_passes(step, greedy.tokens, accepted, noise, count)

    def _passes(self, step: DecodeInputs, inputs: DraftInputs, count: int) -> None:
        self._run_passes(step, inputs.following, inputs.accepted, inputs.noise, count)

    def _run_passes(
        self, step: DecodeInputs, following: torch.Tensor, accepted: torch.Tensor, noise: DraftNoise, count: int
    ) -> None:
        hidden = self._graphs.hidden
        assert hidden is not None
        _, positions, metadata = step.read()
        first_rows = step.first_rows[: len(accepted)]
        present = first_rows >= 0
        first_rows = first_rows.clamp(min=0)
        # Behind the last column is the scratch page, for positions past the bucket's contexts. All of a padding row is there.
        table = torch.nn.functional.pad(metadata.block_table[first_rows], (0, 1), value=step.scratch_page)
        table = table.masked_fill(~present[:, None], step.scratch_page)
        sampling = SamplingRows(first_rows, table, step.context + MAX_DRAFT_TOKENS)
        rows = StepRows(hidden, positions, metadata)
        drafts = step.staged.drafts[: len(accepted), :count]
        self._drafter.draft(rows, following, sampling, accepted * present, noise, drafts)
