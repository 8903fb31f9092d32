"""Data-parallel training: each rank trains on its own conversations, and gradients are averaged before every update.

    torchrun --standalone --nproc-per-node 2 scripts/demo_model/train.py --out build/demo --from model/demo

torchrun sets RANK, LOCAL_RANK and WORLD_SIZE. Without it there is one rank, and nothing here communicates.
"""

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist


class Ranks:
    """number: of this process, from 0; size: how many there are. backend: "nccl" or "gloo"."""

    def __init__(self, device: torch.device):
        self.number, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device = device
        if device.type == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    @property
    def first(self) -> bool:
        return self.number == 0

    @torch.no_grad()
    def average(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace each tensor by its mean over the ranks, in place. All must have the same dtype."""
        if self.size == 1:
            return
        given = list(tensors)
        flat = torch.cat([tensor.reshape(-1) for tensor in given])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(given, flat.split([tensor.numel() for tensor in given]), strict=True):
            tensor.copy_(part.view_as(tensor))

    @torch.no_grad()
    def copy_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Every rank takes over the tensors of rank 0, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def of_first(self, *numbers: float) -> list[float]:
        """The numbers of rank 0, so that all ranks decide alike."""
        return self._shared(numbers, lambda shared: dist.broadcast(shared, 0))

    def everywhere(self, true: bool) -> bool:
        """Whether it is true on every rank."""
        return self._shared([float(true)], lambda shared: dist.all_reduce(shared, dist.ReduceOp.MIN))[0] > 0

    def _shared(self, numbers, exchange) -> list[float]:
        if self.size == 1:
            return list(numbers)
        shared = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        exchange(shared)
        return shared.tolist()

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()
