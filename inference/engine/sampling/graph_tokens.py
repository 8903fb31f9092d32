"""Tokens that are chosen within CUDA graphs, and sent to the host by the device itself.

A step whose requests take the likeliest tokens (`Request.takes_likeliest`) launches only its own graph: no sampling, no copy to the
host, no staging for the next step. Which of its drafts were right follows from the tokens that its rows were computed for.

A step whose requests ask for masks of grammars, temperatures and noise, and no more (`Request.samples_in_graph`), launches one
further graph, once the host has made the masks, unless the likeliest tokens may come. It writes over them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isfinite

import numpy as np
import torch

from ...config import MAX_DRAFT_TOKENS
from ...text.grammar import Mask
from ..request import Request
from ..running.captured_step import CapturedStep
from ..running.inputs import TOKEN_PLACES, DecodeInputs, StagedTokens, pinned, seen_by
from .constraints import EVERY, refused_tokens, write_masks, write_needed_masks
from .filters import Row
from .noise import DraftNoise
from .sampler import Sample, ill_logits, noise_key


class GreedyTokens:
    """The tokens that a bucket's step has chosen, on the device and, in a ring of a few steps, on the host."""

    def __init__(self, rows: int, staged: StagedTokens) -> None:
        """staged: where a following step finds the tokens."""
        device = staged.device
        self._staged = staged
        # Row by row: the chosen token, valid until the next step is launched; the largest logit, fp32 in the first half; the token
        # that the row is computed for.
        self._found = torch.zeros(3, rows, dtype=torch.int64, device=device)
        self.tokens, largest, self.given = self._found
        self._largest = largest.view(torch.float32)[:rows]
        host = pinned((TOKEN_PLACES + 1, 3, rows), torch.int64, device)
        self._ring, self._host = seen_by(device, host), host.numpy()
        on_gpu = device.type == "cuda"
        self._arrived = [torch.cuda.Event() if on_gpu else None for _ in range(TOKEN_PLACES)]
        self._place = 0  # in the ring, of the step that runs
        # By row: whether the next row's token is a right draft. No draft follows the last row.
        self._right = torch.zeros(rows + MAX_DRAFT_TOKENS, dtype=torch.bool, device=device)
        self._following = torch.arange(MAX_DRAFT_TOKENS, device=device)

    def next_place(self) -> int:
        """Return the place of the next step in the ring. Called before its launch."""
        self._place = (self._place + 1) % TOKEN_PLACES
        return self._place

    def find(self, logits: torch.Tensor, place: torch.Tensor, stage: torch.Tensor) -> None:
        """Find the likeliest tokens, within a step's graph, which has filled `given`. logits: fp32 [rows, vocab].

        place: int64 [1] on the device. stage: bool [1], whether a following step may take the tokens.
        """
        torch.max(logits, -1, out=(self._largest, self.tokens))
        self._send(place, stage)

    def replace(self, tokens: torch.Tensor, place: torch.Tensor, stage: torch.Tensor) -> None:
        """Put other tokens, int64 [rows], in the place of those that `find` has found. place, stage: as given to it."""
        self.tokens.copy_(tokens)
        self._send(place, stage)

    def _send(self, place: torch.Tensor, stage: torch.Tensor) -> None:
        self._ring.index_copy_(0, place, self._found[None])
        kept = self._staged.sampled[: len(self.tokens)]
        torch.where(stage, self.tokens[: len(kept)], kept, out=kept)

    def count_accepted(self, first_rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """int64 [M]: how many drafts of each request are right, given its first row. places: as in DecodeInputs, of all rows."""
        is_draft, agrees = places[1:] >= self._staged.first_draft, self.given[1:] == self.tokens[:-1]
        torch.logical_and(is_draft, agrees, out=self._right[: len(self.tokens) - 1])
        return self._right[first_rows[:, None] + self._following].cumprod(-1).sum(-1)

    def sample(self, requests: Sequence[Request], counts: Sequence[int]) -> "GreedySample":
        """The step's tokens, on their way to the host. counts: rows of each request. Called before the bucket's next step."""
        arrived = self._arrived[self._place]
        if arrived is not None:
            arrived.record(torch.cuda.current_stream(self._staged.device))  # this thread's device may be another
        return GreedySample(requests, counts, self._host[self._place], arrived)


@cache
def _known(token: int, drafted: bool) -> Sample:
    """A Sample, kept: making one takes longer than finding it again."""
    return Sample(token, drafted=drafted)


@dataclass(frozen=True)
class GreedySample:
    """The tokens of a step. They must be read before the next step but two is launched."""

    requests: Sequence[Request]
    counts: Sequence[int]  # rows of each request
    _values: np.ndarray  # int64 [3, rows], as `GreedyTokens` writes them
    _arrived: torch.cuda.Event | None  # when they are complete; None: they are already

    def arrived_tokens(self) -> list[int] | None:
        """Row by row; None if they are still to arrive."""
        if self._arrived is not None and not self._arrived.query():
            return None
        values: list[int] = self._values[0, : sum(self.counts)].tolist()
        return values

    def read(self) -> list[list[Sample]]:
        if self._arrived is not None:
            self._arrived.synchronize()
        rows = sum(self.counts)
        tokens, _, given = self._values[:, :rows].tolist()
        finite = [isfinite(value) for value in self._values[1].view(np.float32)[:rows].tolist()]
        if rows == len(self.counts) and all(finite):
            return [[_known(token, False)] for token in tokens]
        samples, first = [], 0
        for request, count in zip(self.requests, self.counts, strict=True):
            own: list[Sample] = []
            for row in range(first, first + count):
                right = row + 1 < first + count and given[row + 1] == tokens[row]
                own.append(_known(tokens[row], right) if finite[row] else ill_logits(request, row - first))
                if not (right and finite[row]):
                    break
            samples.append(own)
            first += count
        return samples


class SamplingInputs:
    """Masks, temperatures and seeds of a step's rows, in tensors that stay in place. Unused rows keep earlier values."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        # Two copies on the host, used in turn: when a step is sampled ahead, the one before it may still be on its way.
        # int64 [3, rows]: the bits of the temperatures, which are float64; seeds; places in the outputs.
        self._host_numbers = [torch.zeros(3, rows, dtype=torch.int64, pin_memory=on_gpu) for _ in range(2)]
        # int32 [rows, ⌈vocab / 32⌉]: a bit for each token that may come, the lowest first.
        self._host_masks = [torch.zeros(rows, -(-vocab // 32), dtype=torch.int32, pin_memory=on_gpu) for _ in range(2)]
        self._mask_rows = [Mask.rows(masks.numpy().view(np.uint32)) for masks in self._host_masks]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self._turn = 0
        self._numbers = torch.zeros_like(self._host_numbers[0], device=device)
        self.masks = torch.zeros_like(self._host_masks[0], device=device)

    def noise(self, rows: int) -> DraftNoise:
        temperatures, seeds, places = self._numbers[:, :rows]
        return DraftNoise(True, temperatures.view(torch.float64), seeds, places)

    def fill(self, requests: Sequence[Request], masked: bool, likeliest: GreedySample | None) -> bool:
        """Copy a step's values to the device; or return False, if the requests may take the `likeliest` tokens, given if all are
        greedy. Raises what a request's grammar raises."""
        self._turn = 1 - self._turn
        copied, count = self._copied[self._turn], len(requests)
        if copied is not None:
            copied.synchronize()
        if masked:
            rows = self._mask_rows[self._turn][:count]
            self._host_masks[self._turn][:count] = EVERY
            if likeliest is None:
                write_masks(requests, rows)
            elif not write_needed_masks(requests, rows, likeliest.arrived_tokens):
                return False
            self.masks[:count].copy_(self._host_masks[self._turn][:count], non_blocking=True)
        if likeliest is None:
            numbers = self._host_numbers[self._turn]
            values = numbers.numpy()
            values[0, :count].view(np.float64)[:] = [request.params.temperature for request in requests]
            values[1:, :count] = np.array([noise_key(Row(request)) for request in requests], dtype=np.int64).T
            self._numbers.copy_(numbers, non_blocking=True)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self.masks.device))  # this thread's device may be another
        return True


class SamplingGraphs:
    """Samples after steps of decode graphs. On a CPU the same operations run without a graph."""

    def __init__(
        self, rows: int, device: torch.device, capture: Callable[[Callable[[], None]], Callable[[], None]]
    ) -> None:
        """rows: of the largest step. capture: see CapturedStep."""
        self._rows, self._device, self._capture = rows, device, capture
        self._given: SamplingInputs | None = None
        # By the inputs of the step's bucket, whether a row has a grammar, and whether one is random.
        self._steps: dict[tuple[DecodeInputs, bool, bool], CapturedStep[None]] = {}

    def free(self) -> None:
        for step in self._steps.values():
            step.free()
        self._steps.clear()

    def sample(
        self,
        requests: Sequence[Request],
        logits: torch.Tensor,
        inputs: DecodeInputs,
        found: GreedyTokens,
        may_capture: bool,
    ) -> GreedySample:
        """The tokens of a step, a row for each request, on their way to the host. They are staged, too.

        logits: fp32 [rows of the bucket, vocab], in place. inputs, found: the bucket's. may_capture: see CapturedStep.run.
        """
        counts = (1,) * len(requests)
        masked = any(request.grammar is not None for request in requests)
        random = any(not request.params.greedy for request in requests)
        if self._given is None:
            self._given = SamplingInputs(self._rows, logits.shape[1], self._device)
        likeliest = None if random else found.sample(requests, counts)
        if not self._given.fill(requests, masked, likeliest) and likeliest is not None:
            return likeliest
        key = (inputs, masked, random)
        if key not in self._steps:
            step = partial(_choose, logits, self._given, inputs, found, masked, random)
            self._steps[key] = CapturedStep(step, self._capture)
        self._steps[key].run(may_capture)
        return found.sample(requests, counts)


def _choose(
    logits: torch.Tensor, given: SamplingInputs, step: DecodeInputs, found: GreedyTokens, masked: bool, random: bool
) -> None:
    """Replace the likeliest tokens of a step's rows by tokens sampled from its logits fp32 [rows, vocab]."""
    rows, scores = step.batch, logits
    if masked:
        scores = scores.masked_fill(refused_tokens(given.masks[:rows], logits.shape[1]), -torch.inf)
    tokens = given.noise(rows).choose(scores) if random else scores.argmax(-1)
    found.replace(tokens, step.views.token_place, step.stage)
