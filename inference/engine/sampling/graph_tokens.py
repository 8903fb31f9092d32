"""The likeliest tokens, which a step's own CUDA graph finds and the device itself sends to the host.

A step whose requests take them (`Request.takes_likeliest`) launches no more than that graph: no sampling, no copy to the host, no
staging for the next step. Which of its drafts were right follows from the tokens that its rows were computed for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite

import numpy as np
import torch

from ...config import MAX_DRAFT_TOKENS
from ..request import Request
from ..running.host_memory import pinned, seen_by
from ..running.inputs import TOKEN_PLACES, StagedTokens
from .sampler import Sample, ill_logits


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
