"""Time one all-reduce over all GPUs of a job; a decode step has two in each layer. Prints a table, then one line of JSON.

    PYTHONSAFEPATH=1 torchrun --standalone --nproc-per-node 8 scripts/bench/collectives.py

Tensors are [T, 7168] in bf16. A CUDA graph holds 64 all-reduces and no rank is late, so the result is only the time of an
all-reduce. `used` is the model's own all-reduce (model/parallel/collectives.py): through memory that the GPUs share, where there is
some and the tensor is small enough, else NCCL.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from deepseek_v32.inference.distributed.launch import this_job
from deepseek_v32.model.config import ModelConfig

sys.path.insert(0, str(Path(__file__).parents[1]))  # PYTHONSAFEPATH leaves it out

from bench.engine_parts.machine import describe_machine

IN_GRAPH = 64  # all-reduces in one CUDA graph


def microseconds(operation: Callable[[torch.Tensor], object], x: torch.Tensor, repeats: int) -> float:
    """Median time of one operation on x, in a graph of IN_GRAPH. All ranks call this at the same time."""
    for _ in range(3):
        operation(x.clone())
    torch.cuda.synchronize(x.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(IN_GRAPH):
            operation(x)
    rounds = []
    for _ in range(repeats):
        dist.barrier()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize(x.device)
        rounds.append(start.elapsed_time(end) * 1e3 / IN_GRAPH)
    return statistics.median(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 8, 64, 128], help="default: 1 8 64 128")
    parser.add_argument("--repeats", type=int, default=9, help="graph replays to time (default: %(default)s)")
    arguments = parser.parse_args()
    job = this_job()
    size = 1 if job is None else job.size
    if job is None or torch.cuda.device_count() < size:
        found = f"the job has {size} ranks and {torch.cuda.device_count()} GPUs"
        raise SystemExit(f"{found}; expected several ranks with a GPU each: start with torchrun")
    device = torch.device("cuda", job.rank)
    ranks = job.ranks(str(device))
    if ranks.rank == 0:
        print(f"{'tokens':>8} {'bytes':>10} {'NCCL':>8} {'used':>8}   microseconds per all-reduce on {size} GPUs")
    results = []
    for tokens in arguments.tokens:
        x = torch.randn(tokens, ModelConfig().hidden_size, device=device).bfloat16()
        nccl, used = (microseconds(reduce, x, arguments.repeats) for reduce in (dist.all_reduce, ranks.all_reduce))
        results.append({"tokens": tokens, "bytes": x.nbytes, "nccl_us": round(nccl, 1), "used_us": round(used, 1)})
        if ranks.rank == 0:
            print(f"{tokens:8} {x.nbytes:10} {nccl:8.1f} {used:8.1f}", flush=True)
    if ranks.rank == 0:
        print(json.dumps({**describe_machine(device), "ranks": size, "results": results}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
