"""This process's place in a job of several ranks, and the collectives that the model calls, over torch.distributed."""

import logging

import torch
import torch.distributed as dist

# Its name from torch 2.13 on; the old one warns there.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

SHARED_BYTES = 2 << 20  # sums of up to so many bytes go through memory that the GPUs share: what 128 tokens need
_VECTOR = 16  # bytes that its kernel moves at a time

log = logging.getLogger(__name__)


class Ranks:
    """This process's place among those of a job, and what they compute together, over torch.distributed's default group.

    shared: uint8 memory of this rank that the kernels of all others can read, from `shared_memory`.
    """

    def __init__(self, rank: int, size: int, shared: torch.Tensor | None = None) -> None:
        self.rank, self.size = rank, size
        self._shared = shared

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's x, which may be overwritten."""
        shared = self._shared
        if shared is not None and x.nbytes <= shared.nbytes and x.nbytes % _VECTOR == 0 and x.is_contiguous():
            # One kernel: each rank puts x where the others see it, then adds all of them up by itself, in the order of ranks.
            place = shared[: x.nbytes].view(x.dtype).view(x.shape)
            total: torch.Tensor = torch.ops.symm_mem.one_shot_all_reduce_copy(place, x, "sum", _group().group_name)
            return total
        dist.all_reduce(x)
        return x

    def all_to_all(self, x: torch.Tensor) -> torch.Tensor:
        """x [size, ...], whose part r is for rank r -> what every rank had for this one, in the order of ranks."""
        received = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, x.contiguous())
        return received

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Every rank's x [...], in the order of ranks: [size, ...]."""
        gathered = x.new_empty(self.size, *x.shape)
        _all_gather(gathered.view(-1, *x.shape[1:]), x.contiguous())
        return gathered


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def shared_memory(device: torch.device, size: int) -> torch.Tensor | None:
    """Memory for `Ranks`, if all the GPUs of this machine's job reach each other's; else None. All ranks call it together.

    A decode step adds up two small tensors a layer. NCCL takes several steps for each, this a single one.
    """
    if device.type != "cuda" or size == 1:
        return None
    buffer = None
    try:
        from torch.distributed import _symmetric_memory as symmetric

        if all(torch.cuda.can_device_access_peer(device, other) for other in range(size) if other != device.index):
            buffer = symmetric.empty(SHARED_BYTES, dtype=torch.uint8, device=device)
            symmetric.rendezvous(buffer, _group())
    except (ImportError, AttributeError, RuntimeError) as error:  # torch's interface to it is not public yet
        log.warning("no memory shared between GPUs: %s", " ".join(str(error).split())[:200])
        buffer = None
    agreed = torch.tensor(int(buffer is not None), device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return buffer if agreed.item() else None
