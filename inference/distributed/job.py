"""A job of several ranks: the parts that rank 0 (leader.py) and the other ranks (follower.py) share."""

import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from ...model.parallel.collectives import Ranks, shared_memory
from .shutdown import leave_group

GRACE_SECONDS = 0.5  # the time in which another process that is ending can report its own, better reason
_GROUP = "deepseek-v32/group"  # the store's key for the name of the group of collectives


@dataclass(frozen=True)
class Place:
    """Where a rank is."""

    rank: int
    size: int  # of the job
    local_rank: int = 0  # among the ranks of its machine
    one_machine: bool = True  # for all ranks of the job


class Member:
    """The parts that all ranks have in common."""

    def __init__(self, store: Any, place: Place) -> None:
        self.rank, self.size = place.rank, place.size
        self._place = place
        # Called when the job ends in order, while the group of collectives still exists.
        self.before_end: list[Callable[[], None]] = []
        self._store = store  # referenced as long as the job runs: one process serves it to all the others
        self._ranks: Ranks | None = None

    def device(self, kind: str) -> str:
        """This rank's device of a kind: "cuda" is the GPU of its local rank."""
        return f"cuda:{self._place.local_rank}" if kind == "cuda" else kind

    def ranks(self, device: str) -> Ranks:
        """The group of collectives, made at the first call: NCCL on GPUs, gloo on CPUs."""
        if self._ranks is None:
            where = torch.device(device)
            on_gpu = where.type == "cuda"
            if on_gpu:
                torch.cuda.set_device(where)
            if self.rank == 0:
                self._store.set(_GROUP, f"deepseek-v32-{secrets.token_hex(8)}")
            hook = sys.excepthook
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=PrefixStore("deepseek-v32/collectives", self._store),
                rank=self.rank,
                world_size=self.size,
                # torch keeps what it knows of a name, so the next job of this process needs another one.
                group_name=self._store.get(_GROUP).decode(),
                device_id=where if on_gpu else None,
            )
            sys.excepthook = hook  # torch's writes [rank0] before each line of the user's own errors
            shared = shared_memory(where, self.rank, self.size) if self._place.one_machine else None
            self._ranks = Ranks(self.rank, self.size, shared)
        return self._ranks

    def _leave(self, single: bool = False) -> None:
        """Leave the group of collectives, with all ranks at the same time or as a single rank."""
        for release in self.before_end:
            release()
        leave_group(single)
