"""The likeliest token of each row of a decode step, found within its graph and sent to the host by the device itself.

A step whose requests take just these tokens (`Request.takes_likeliest`) launches nothing beside its graph: no sampling, no copy to
the host, no staging for the next step. Which of its drafts were right follows from the tokens that its rows were computed for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Protocol

import numpy as np
import torch

from ...params import Request
from ..limits import MAX_DRAFT_TOKENS
from ..running.inputs import StagedTokens
from ..running.pinned_memory import pinned, seen_by
from .sampler import Sample, ill_logits

_PLACES = 4  # steps that the ring holds; two at most have not been read
SCRATCH_PLACE = _PLACES  # where steps write whose tokens nobody reads


class FoundTokens(Protocol):
    """What a step needs of GreedyTokens."""

    def sample(self, requests: Sequence[Request], counts: Sequence[int]) -> "GreedySample":
        """The latest step's tokens, on their way to the host. counts: rows of each request."""


class GreedyTokens:
    """Those of a bucket's latest step, on the device and, in a ring of a few steps, on the host."""

    def __init__(self, rows: int, staged: StagedTokens) -> None:
        """staged: where a following step finds the tokens."""
        device = staged.device
        self._staged = staged
        # Row by row: the likeliest token; its logit, as fp32 in the first half; the token that the row was computed for.
        self._found = torch.zeros(3, rows, dtype=torch.int64, device=device)
        host = pinned((_PLACES + 1, 3, rows), torch.int64, device)
        self._ring, self._host = seen_by(device, host), host.numpy()
        on_gpu = device.type == "cuda"
        self._arrived = [torch.cuda.Event() if on_gpu else None for _ in range(_PLACES)]
        self._place = 0  # of the latest step
        # By row, whether the next one's token is a draft that is right; no draft follows the last row.
        self._right = torch.zeros(rows + MAX_DRAFT_TOKENS, dtype=torch.bool, device=device)
        self._following = torch.arange(MAX_DRAFT_TOKENS, device=device)

    @property
    def tokens(self) -> torch.Tensor:
        """int64 [rows] on the device, valid until the next step is launched."""
        return self._found[0]

    @property
    def given(self) -> torch.Tensor:
        """int64 [rows] on the device: the tokens that the step's rows are computed for."""
        return self._found[2]

    def next_place(self) -> int:
        """The place of the next step, to be called before its launch."""
        self._place = (self._place + 1) % _PLACES
        return self._place

    def find(self, logits: torch.Tensor, place: torch.Tensor, stage: torch.Tensor) -> None:
        """Within a step's graph, which has put its own tokens into `given`. logits: fp32 [rows, vocab].

        place: int64 [1] on the device. stage: bool [1], whether a following step may take the tokens.
        """
        tokens = self._found[0]
        torch.max(logits, -1, out=(self._found[1].view(torch.float32)[: len(tokens)], tokens))
        self._send(place, stage)

    def replace(self, tokens: torch.Tensor, place: torch.Tensor, stage: torch.Tensor) -> None:
        """Have other tokens, int64 [rows], in the place of those that `find` has found. place, stage: as given to it."""
        self._found[0].copy_(tokens)
        self._send(place, stage)

    def _send(self, place: torch.Tensor, stage: torch.Tensor) -> None:
        self._ring.index_copy_(0, place, self._found[None])
        tokens = self._found[0]
        kept = self._staged.sampled[: len(tokens)]
        torch.where(stage, tokens[: len(kept)], kept, out=kept)

    def count_accepted(self, first_rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """int64 [M]: how many drafts of each request are right, given its first row. places: as in DecodeInputs, of all rows."""
        tokens, _, given = self._found
        is_draft, agrees = places[1:] >= self._staged.first_draft, given[1:] == tokens[:-1]
        torch.logical_and(is_draft, agrees, out=self._right[: len(tokens) - 1])
        return self._right[first_rows[:, None] + self._following].cumprod(-1).sum(-1)

    def sample(self, requests: Sequence[Request], counts: Sequence[int]) -> "GreedySample":
        arrived = self._arrived[self._place]
        if arrived is not None:
            arrived.record(torch.cuda.current_stream(self._staged.device))  # this thread's device may be another
        return GreedySample(requests, counts, self._host[self._place], arrived)


@cache
def _sample(token: int, drafted: bool) -> Sample:
    """Making one takes longer than finding it again."""
    return Sample(token, drafted=drafted)


@dataclass(frozen=True)
class GreedySample:
    """The tokens of a step. They must be read before the next step but two is launched."""

    requests: Sequence[Request]
    counts: Sequence[int]  # rows of each request
    _values: np.ndarray  # int64 [3, rows], as `GreedyTokens` writes them
    _arrived: torch.cuda.Event | None  # when they are complete; None: they are already

    @property
    def has_arrived(self) -> bool:
        return self._arrived is None or self._arrived.query()

    @property
    def tokens(self) -> list[int]:
        """Row by row, once they have arrived."""
        values: list[int] = self._values[0, : sum(self.counts)].tolist()
        return values

    def read(self) -> list[list[Sample]]:
        """As SampledTokens.read."""
        if self._arrived is not None:
            self._arrived.synchronize()
        rows = sum(self.counts)
        tokens, _, given = self._values[:, :rows].tolist()
        finite = [isfinite(value) for value in self._values[1].view(np.float32)[:rows].tolist()]
        if rows == len(self.counts) and all(finite):
            return [[_sample(token, False)] for token in tokens]
        samples, first = [], 0
        for request, count in zip(self.requests, self.counts, strict=True):
            own: list[Sample] = []
            for row in range(first, first + count):
                right = row + 1 < first + count and given[row + 1] == tokens[row]
                own.append(_sample(tokens[row], right) if finite[row] else ill_logits(request, row - first))
                if not (right and finite[row]):
                    break
            samples.append(own)
            first += count
        return samples
