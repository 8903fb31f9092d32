"""Several ranks as one engine: rank 0 takes requests, the other ranks follow it.

    deepseek-v32 serve --model DIRECTORY --tensor-parallel-size 8     # or LLM(DIRECTORY, tensor_parallel_size=8)
    torchrun --nproc-per-node 8 --no-python deepseek-v32 serve --model DIRECTORY                     # with PYTHONSAFEPATH=1

In the first form rank 0 starts the others as its children; in the second torchrun starts all, on one machine or several. Rank 0
schedules and samples as a single process does, and sends each step's batch to the others over a socket, on which they wait while
there are no requests. A process that ends closes its socket: the rank that notices it prints one line, and all ranks end.
"""

import os
from datetime import timedelta
from functools import cache

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ...kernels.errors import ArgumentError
from ...model.parallel.plan import SIZES
from .connection import START_SECONDS, Children, accept_ranks, connect_to_rank_0
from .job import Follower, Leader, Place


def world_size() -> int:
    """The number of ranks in this job, as torchrun sets it; 1 without torchrun. ValueError if it is not a number."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WORLD_SIZE is {text!r}; expected a number of processes, as torchrun sets it")
    return int(text)


@cache
def this_job() -> Leader | Follower | None:
    """This process's side of the job that torchrun has started; None without torchrun. The first call waits for all ranks."""
    size = world_size()
    if size == 1:
        return None
    local = os.environ.get("LOCAL_WORLD_SIZE", str(size))
    if not local.isdecimal() or not 1 <= int(local) <= size:
        raise ValueError(f"LOCAL_WORLD_SIZE is {local!r}; expected 1 to {size}, the WORLD_SIZE, as torchrun sets it")
    one_machine = int(local) == size
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS))))
    except ValueError as error:
        raise ValueError(f"WORLD_SIZE is {size}; expected torchrun to have started this process ({error})") from error
    place = Place(rank, size, int(os.environ.get("LOCAL_RANK", "0")), one_machine)
    if rank == 0:
        host = None if one_machine else os.environ["MASTER_ADDR"]
        return Leader(store, place, accept_ranks(store, size, host))
    return Follower(store, place, connect_to_rank_0(store, rank))


def check_size(size: int) -> None:
    """Raise ArgumentError for a number of ranks that no model can be shared by."""
    if type(size) is not int or size not in SIZES:
        raise ArgumentError("tensor_parallel_size", f"{size!r}", "1, 2, 4 or 8")


def start_ranks(size: int) -> Leader | None:
    """Start the other ranks of a job as children of this process. None for a size of 1. ValueError for another that cannot be."""
    check_size(size)
    if (given := world_size()) > 1:
        raise ArgumentError("tensor_parallel_size", size, f"none under torchrun, which has started {given} ranks")
    if size == 1:
        return None
    if dist.is_initialized():
        raise ArgumentError(
            "tensor_parallel_size", size, "1 while torch.distributed is in use in this process: close() the other LLM"
        )
    children = Children(size)
    return Leader(children.store, Place(0, size), children.channels, children)
