"""Sums over the ranks of a job by GPUs that write into each other's memory, in one launch."""

from typing import NamedTuple

import torch

from ..alignment import is_aligned
from ..build import load

PIECE_BYTES, CTA_BYTES = 16, 4096  # of x, for a thread and for a CTA


class Inboxes(NamedTuple):
    """Memory of all ranks' GPUs, in which ranks leave each other their parts of a sum. Zero before the first sum."""

    own: torch.Tensor  # uint8 [size * 2 * slot_bytes], this rank's
    addresses: torch.Tensor  # int64 [size]: where this rank's GPU finds the inboxes of all ranks
    calls: torch.Tensor  # int32 [slot_bytes / 2 / CTA_BYTES]: how many sums each CTA has made
    rank: int

    @staticmethod
    def size_of(ranks: int, largest: int) -> int:
        """Bytes of an inbox for sums of up to `largest` bytes: two places for each rank, half of each for signals."""
        return ranks * 2 * 2 * largest

    @property
    def slot_bytes(self) -> int:
        return self.own.nbytes // (2 * len(self.addresses))

    def fits(self, x: torch.Tensor) -> bool:
        """Whether `all_reduce` takes x."""
        known = x.dtype in (torch.bfloat16, torch.float32) and x.is_contiguous() and is_aligned(x.view(-1))
        return known and x.nbytes % PIECE_BYTES == 0 and 0 < 2 * x.nbytes <= self.slot_bytes


def all_reduce(x: torch.Tensor, inboxes: Inboxes) -> torch.Tensor:
    """The sum of every rank's x, added in the order of ranks in fp32 and rounded once.

    All ranks call it in the same order with x of one shape. `inboxes.fits(x)` must hold.
    """
    out = torch.empty_like(x)
    load("all_reduce").all_reduce(x, out, inboxes.addresses, inboxes.calls, inboxes.slot_bytes, inboxes.rank)
    return out
