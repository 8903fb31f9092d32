"""Sums over a job's ranks in one launch: the GPUs write into each other's memory."""

from typing import NamedTuple

import torch

from ..alignment import is_aligned
from ..build import load
from ..types import Normed, Quantized
from .pdl import weights_are_static

PIECE_BYTES, CTA_BYTES = 16, 4096  # of x, for a thread and for a CTA
COLUMNS, NORM_THREADS = 16, 512  # of a token, for a thread of the kernel with a norm; its threads, at most
LONGEST_WAIT = 600.0  # seconds for another rank, as NCCL waits by default; then the kernel fails


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

    def place(self) -> tuple[torch.Tensor, torch.Tensor, int, int, int]:
        """Return a kernel's arguments: the inboxes, and how many nanoseconds it waits for another rank."""
        return self.addresses, self.calls, self.slot_bytes, self.rank, round(LONGEST_WAIT * 1e9)

    def fits_norm(self, x: torch.Tensor, residual: torch.Tensor) -> bool:
        """Check that `all_reduce_norm` supports x [T, D] and residual."""
        step = 32 * COLUMNS
        known = (
            x.dim() == 2
            and x.dtype == torch.bfloat16
            and x.shape[1] % step == 0
            and x.shape[1] <= NORM_THREADS * COLUMNS
        )
        return known and self.fits(x) and len(x) <= len(self.calls) and is_aligned(residual) and residual.stride(1) == 1

    def fits(self, x: torch.Tensor) -> bool:
        """Check that `all_reduce` supports x."""
        known = x.dtype in (torch.bfloat16, torch.float32) and x.is_contiguous() and is_aligned(x.view(-1))
        return known and x.nbytes % PIECE_BYTES == 0 and 0 < 2 * x.nbytes <= self.slot_bytes


def all_reduce(x: torch.Tensor, inboxes: Inboxes) -> torch.Tensor:
    """Return the sum of every rank's x, added in the order of ranks in fp32 and rounded once.

    All ranks call it in the same order with x of one shape. `inboxes.fits(x)` must hold.
    """
    out = torch.empty_like(x)
    load("all_reduce").all_reduce(x, out, *inboxes.place())
    return out


def all_reduce_norm(
    x: torch.Tensor, inboxes: Inboxes, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, ue8m0: bool
) -> Normed:
    """Return `rms_norm_quantize` of `residual` [T, D] plus the sum of every rank's x [T, D], which `all_reduce` defines.

    `inboxes.fits_norm(x, residual)` must hold. Only this operation may use the inboxes, and D is the same each time: a CTA counts
    the sums of its token.
    """
    total, rows = torch.empty_like(x), torch.empty_like(x)
    codes = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(len(x), x.shape[1] // 128, dtype=torch.float32)
    results = total, rows, codes, scales
    static_weights = weights_are_static(norm_weight)
    load("all_reduce").all_reduce_norm(x, *inboxes.place(), residual, norm_weight, *results, eps, ue8m0, static_weights)
    return Normed(total, rows, Quantized(codes, scales))
