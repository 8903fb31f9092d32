"""Several ranks of one machine as one engine, under torchrun: rank 0 takes requests, the other ranks follow it.

    torchrun --nproc-per-node 8 -m deepseek_v32.inference.generate --ckpt-path DIRECTORY     # with PYTHONSAFEPATH=1
    torchrun --nproc-per-node 8 --no-python deepseek-v32 serve --model DIRECTORY

Rank 0 reads the command line, loads, schedules and samples as a single process does. Before each step it sends the step's batch to
the other ranks over a local socket; then all ranks run the same forward pass and meet in its collectives. While there are no
requests, the other ranks wait on the socket, not in a collective. The socket also reports at once that a process has ended: the
rank that notices it prints one line and ends, and so do all the others, even those that hang in a collective of the lost rank.
"""

import os
from datetime import timedelta
from functools import cache

from torch.distributed.rendezvous import rendezvous

from .job import START_SECONDS, Follower, Leader


def world_size() -> int:
    """The number of ranks in this job, as torchrun sets it; 1 without torchrun. ValueError if it is not a number."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WORLD_SIZE is {text!r}; expected a number of processes, as torchrun sets it")
    return int(text)


@cache
def this_job() -> Leader | Follower | None:
    """This process's side of its job; None without torchrun. The first call waits for the other ranks to start."""
    size = world_size()
    if size == 1:
        return None
    if int(os.environ.get("LOCAL_WORLD_SIZE", size)) != size:
        local = os.environ["LOCAL_WORLD_SIZE"]
        raise ValueError(f"LOCAL_WORLD_SIZE is {local}; expected {size}, the WORLD_SIZE: all ranks on one machine")
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS))))
    except ValueError as error:
        raise ValueError(f"WORLD_SIZE is {size}; expected torchrun to have started this process ({error})") from error
    return Leader(store, size) if rank == 0 else Follower(store, rank, size)


def device_of(kind: str) -> str:
    """This rank's device of a kind: "cuda" is the GPU of its local rank."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if kind == "cuda" else kind
