"""Several ranks of one machine as one engine, under torchrun: rank 0 takes requests, the others follow it.

    torchrun --nproc-per-node 8 -m deepseek_v32.inference.generate --ckpt-path DIRECTORY     # with PYTHONSAFEPATH=1
    torchrun --nproc-per-node 8 --no-python deepseek-v32 serve --model DIRECTORY

Rank 0 reads the command line, loads, schedules and samples as a single process does. Before each step it tells the others, over
a local socket, what the step is; then all run the same forward pass and meet in its collectives. Who waits for requests waits on
that socket, not in a collective. It also tells at once when a process is gone: whoever notices says so in a line and ends, and so
do all the others, even those that hang in a collective of the lost one.
"""

import os
from datetime import timedelta
from functools import cache

from torch.distributed.rendezvous import rendezvous

from .job import START_SECONDS, Follower, Leader


def world_size() -> int:
    """How many ranks this job has, as torchrun says; 1 without it. ValueError if that is no number."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WORLD_SIZE is {text!r}; expected a number of processes, as torchrun sets it")
    return int(text)


@cache
def this_job() -> "Leader | Follower | None":
    """This process's part in its job; None if it is alone. Waits for the other ranks to come up the first time."""
    size = world_size()
    if size == 1:
        return None
    if int(os.environ.get("LOCAL_WORLD_SIZE", size)) != size:
        raise ValueError(
            f"WORLD_SIZE is {size}, {os.environ['LOCAL_WORLD_SIZE']} of them here; wanted all on one machine"
        )
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS))))
    except ValueError as error:
        raise ValueError(f"WORLD_SIZE is {size}, but {error}: start with torchrun") from error
    return Leader(store, size) if rank == 0 else Follower(store, rank, size)


def device_of(kind: str) -> str:
    """This rank's device of a kind: "cuda" is the GPU of its local rank."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if kind == "cuda" else kind
