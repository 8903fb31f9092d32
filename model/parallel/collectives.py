"""This process's place in a job of several ranks, and the collectives that the model calls, over torch.distributed."""

import logging

import torch
import torch.distributed as dist

# all_gather_single is its name since torch 2.13, where the old name warns.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

SHARED_BYTES = 2 << 20  # largest sum that goes through memory shared by the GPUs: that of 128 tokens
_VECTOR = 16  # its kernel moves this many bytes at a time

log = logging.getLogger(__name__)


class Ranks:
    """This process's rank in a job of `size`, and the collectives of torch.distributed's default group.

    shared: uint8 memory of this rank, from `shared_memory`, that the kernels of all other ranks can read.
    """

    def __init__(self, rank: int, size: int, shared: torch.Tensor | None = None) -> None:
        self.rank, self.size = rank, size
        self._shared = shared

    def all_reduce(self, x: torch.Tensor, in_order: bool = False) -> torch.Tensor:
        """The sum of every rank's x. x may be overwritten.

        in_order: each element is summed in the order of ranks. gloo begins with another rank in each part of a large x.
        """
        if in_order and self.size > 2:
            first, *others = self.all_gather(x)
            for other in others:
                first += other
            return first
        shared = self._shared
        if shared is not None and x.nbytes <= shared.nbytes and x.nbytes % _VECTOR == 0 and x.is_contiguous():
            # One kernel: each rank publishes its x in shared memory, then sums all of them itself, in the order of ranks.
            place = shared[: x.nbytes].view(x.dtype).view(x.shape)
            total: torch.Tensor = torch.ops.symm_mem.one_shot_all_reduce_copy(place, x, "sum", _group().group_name)
            return total
        dist.all_reduce(x)
        return x

    def all_to_all(self, x: torch.Tensor) -> torch.Tensor:
        """x [size, ...], of which part r goes to rank r -> the parts for this rank, in the order of ranks."""
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
    """Memory for `Ranks` if all the job's GPUs can access each other's memory, else None. All ranks must call it.

    A decode step sums two small tensors per layer. NCCL takes several steps for each sum; a kernel over shared memory takes one.
    """
    if device.type != "cuda" or size == 1:
        return None
    buffer = None
    try:
        from torch.distributed import _symmetric_memory as symmetric

        if all(torch.cuda.can_device_access_peer(device, other) for other in range(size) if other != device.index):
            buffer = symmetric.empty(SHARED_BYTES, dtype=torch.uint8, device=device)
            symmetric.rendezvous(buffer, _group())
    except (ImportError, AttributeError, RuntimeError) as error:  # torch's interface is not public yet
        log.warning("no memory shared between GPUs: %s", " ".join(str(error).split())[:200])
        buffer = None
    agreed = torch.tensor(int(buffer is not None), device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return buffer if agreed.item() else None
