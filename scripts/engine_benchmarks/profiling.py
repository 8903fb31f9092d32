"""Where a step's time goes on the GPU, by PyTorch's profiler.

The time of a collective's kernels includes waiting for the slowest rank; benchmark_collectives.py times collectives alone. Kernels
launched by programmatic dependent launch overlap the kernels before them, so the sum of all kernels may exceed the step's time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

COLLECTIVES = ("nccl", "one_shot_all_reduce", "two_shot_all_reduce")  # parts of their kernels' names


class KernelTime(NamedTuple):
    """One kernel's share of a step."""

    microseconds: float
    launches: float


def kernel_times(run: Callable[[], object], steps: int) -> dict[str, KernelTime]:
    """Profile one call of `run`, which takes `steps` steps. Kernel name -> time and launches per step."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    events = profiler.key_averages()
    return {event.key: KernelTime(event.self_device_time_total / steps, event.count / steps) for event in events}


def summarise(times: dict[str, KernelTime], count: int) -> dict[str, Any]:
    """JSON values, in milliseconds per step: all kernels, those of collectives, and the `count` longest."""
    collectives = {part: sum(time.microseconds for name, time in times.items() if part in name) for part in COLLECTIVES}
    longest = sorted(times.items(), key=lambda item: -item[1].microseconds)[:count]
    return {
        "kernels_ms": sum(time.microseconds for time in times.values()) / 1e3,
        "launches": sum(time.launches for time in times.values()),
        "collectives_ms": {part: total / 1e3 for part, total in collectives.items() if total},
        "longest": [[round(time.microseconds / 1e3, 3), round(time.launches, 1), name[:100]] for name, time in longest],
    }


def print_summary(summary: dict[str, Any]) -> None:
    """Print what `summarise` returned, indented below a benchmark's line."""
    collectives = ", ".join(f"{part} {total:.2f}" for part, total in summary["collectives_ms"].items()) or "none"
    print(
        f"    kernels {summary['kernels_ms']:.2f} ms in {summary['launches']:.0f} launches; of which collectives: {collectives}"
    )
    for milliseconds, launches, name in summary["longest"]:
        print(f"    {milliseconds:9.3f} ms {launches:7.1f} x {name}")
