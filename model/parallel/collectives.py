"""This process's place in a job of several ranks, and the collectives that the model calls, over torch.distributed."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ...kernels.alignment import ROW_BYTES
from ...kernels.build import load
from ...kernels.cuda.all_reduce import CTA_BYTES, Inboxes, all_reduce, all_reduce_norm
from ...kernels.device import describe, is_hopper
from ...kernels.types import Normed

# Their names since torch 2.13, where the old names warn.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

SHARED_BYTES = 2 << 20  # largest sum through memory shared by the GPUs: 128 tokens

log = logging.getLogger(__name__)


class Ranks:
    """This process's rank in a job of `size`, and the collectives of torch.distributed's default group.

    shared: memory from `shared_memory`, into which the kernels of all other ranks can write.
    """

    def __init__(self, rank: int, size: int, shared: "SharedMemory | None" = None) -> None:
        self.rank, self.size = rank, size
        self._shared = shared

    def fuses_norm(self, x: torch.Tensor) -> bool:
        """Return whether the sum of x [T, D] may be left to the next norm, as `PendingSum`."""
        return self._shared is not None and self._shared.norms.fits_norm(x, x)

    def all_reduce(self, x: torch.Tensor, in_order: bool = False) -> torch.Tensor:
        """Sum every rank's x. x may be overwritten.

        in_order: each element is summed in the order of ranks, as small sums of GPUs always are. gloo begins with another rank in
        each part of a large x.
        """
        if self._shared is not None and self._shared.sums.fits(x):
            return all_reduce(x, self._shared.sums)
        if in_order and self.size > 2:
            first, *others = self.all_gather(x)
            total = first.float()  # rounded once, as by the kernel
            for other in others:
                total += other
            return total.to(x.dtype)
        dist.all_reduce(x)
        return x

    def all_reduce_norm(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, ue8m0: bool
    ) -> Normed:
        """Norm `residual` [T, D] plus the sum of every rank's x [T, D], for which `fuses_norm` holds."""
        assert self._shared is not None
        return all_reduce_norm(x, self._shared.norms, residual, norm_weight, eps, ue8m0)

    def reduce_scatter(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Sum every rank's x [T, ...], T at most size * rows, and return this rank's `rows` rows of the sum."""
        missing = self.size * rows - len(x)
        if missing:
            x = F.pad(x, (0, 0) * (x.dim() - 1) + (0, missing))
        total = x.new_empty(rows, *x.shape[1:])
        if x.is_cuda:
            _reduce_scatter(total, x.contiguous())
            return total
        parts = torch.empty_like(x)  # gloo has no sum of this kind
        dist.all_to_all_single(parts, x.contiguous())
        return torch.sum(parts.unflatten(0, (self.size, rows)), 0, out=total)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Gather every rank's x [...], in the order of ranks: [size, ...]."""
        gathered = x.new_empty(self.size, *x.shape)
        _all_gather(gathered.view(-1, *x.shape[1:]), x.contiguous())
        return gathered

    def gather_rows(self, parts: Sequence[torch.Tensor], rows: int, kept: slice | torch.Tensor) -> list[torch.Tensor]:
        """Gather every rank's rows of several tensors [r, D] at once -> [T, D] each.

        Every rank has at most `rows` rows. kept: the T that are rows among the size * rows that are gathered, in their order. The
        results are views of one buffer, whose rows are aligned to 16 bytes.
        """
        words = [_words(part) for part in parts]
        own = torch.cat(words, 1)
        if len(own) < rows:
            own = F.pad(own, (0, 0, 0, rows - len(own)))
        gathered = self.all_gather(own).flatten(0, 1)[kept]
        columns = gathered.split_with_sizes([each.shape[1] for each in words], 1)
        return [each.view(part.dtype)[:, : part.shape[1]] for each, part in zip(columns, parts, strict=True)]


def _words(x: torch.Tensor) -> torch.Tensor:
    """Return the bytes of x's rows, padded to 16, as int64: a copy of single bytes takes four times as long."""
    # A single row counts as contiguous whatever its stride, so it is copied.
    x = x.clone(memory_format=torch.contiguous_format) if x.shape[0] == 1 else x.contiguous()
    missing = -x.shape[1] * x.element_size() % ROW_BYTES
    return (F.pad(x.view(torch.uint8), (0, missing)) if missing else x).view(torch.int64)


class SharedMemory(NamedTuple):
    """Inboxes for plain sums, and for sums with a norm, whose CTAs count tokens."""

    sums: Inboxes
    norms: Inboxes


def shared_memory(device: torch.device, rank: int, size: int) -> SharedMemory | None:
    """Share memory for `Ranks` if all GPUs are Hopper and can access each other's memory, else None. All ranks must call it.

    A decode step sums two small tensors per layer. NCCL takes several steps for each sum; a kernel over shared memory takes one.
    """
    if device.type != "cuda" or size == 1:
        return None
    reason = ""
    try:
        if not is_hopper(device):
            reason = f"the kernel of sums needs a Hopper GPU (sm_90), this is {describe(device)}"
        elif not all(
            torch.cuda.can_device_access_peer(device, other) for other in range(size) if other != device.index
        ):
            reason = "GPUs do not reach each other's memory"
        else:
            load("all_reduce")
    except RuntimeError as error:
        reason = str(error)
    if not _agree(device, not reason):
        log.warning("no memory shared between GPUs: %s", " ".join(reason.split())[:200] or "other ranks have none")
        return None
    shared = None
    try:
        from torch.distributed import _symmetric_memory as symmetric

        bytes_of_inbox = Inboxes.size_of(size, SHARED_BYTES)
        assert dist.group.WORLD is not None
        own = symmetric.empty(2 * bytes_of_inbox, dtype=torch.uint8, device=device).zero_()
        addresses = torch.tensor(symmetric.rendezvous(own, dist.group.WORLD).buffer_ptrs, device=device)
        calls = torch.zeros(2, SHARED_BYTES // CTA_BYTES, dtype=torch.int32, device=device)
        places = (slice(0, bytes_of_inbox), slice(bytes_of_inbox, None))
        shared = SharedMemory(
            *(Inboxes(own[each], addresses + each.start, calls[i], rank) for i, each in enumerate(places))
        )
    except (ImportError, AttributeError, RuntimeError) as error:  # torch's interface is not public yet
        log.warning("no memory shared between GPUs: %s", " ".join(str(error).split())[:200])
    return shared if _agree(device, shared is not None) else None  # this sum also waits until all inboxes are zero


def _agree(device: torch.device, yes: bool) -> bool:
    """Return whether all ranks say yes."""
    agreed = torch.tensor(int(yes), device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return bool(agreed.item())
