"""Where a step's time goes on the GPU, by PyTorch's profiler.

The time of a collective's kernels includes waiting for the slowest rank; bench/collectives.py times only collectives. Kernels
launched by programmatic dependent launch overlap the kernels before them, so the sum of all kernels may exceed the step's time.
"""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler_util import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

COLLECTIVES = ("nccl", "all_reduce")  # parts of their kernels' names


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
    events = [event for event in profiler.key_averages() if event.device_type == DeviceType.CUDA]
    return {event.key: KernelTime(event.self_device_time_total / steps, event.count / steps) for event in events}


class Launch(NamedTuple):
    """One kernel on the GPU's clock, in microseconds."""

    name: str
    start: float
    end: float


def launches(run: Callable[[], object]) -> list[Launch]:
    """The kernels and copies of one call of `run`, in the order in which they end."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    events = [
        event for event in profiler.events() if event.device_type == DeviceType.CUDA and "layer " not in event.name
    ]
    found = [Launch(event.name, event.time_range.start, event.time_range.end) for event in events]
    return sorted(found, key=lambda launch: launch.end)


def timeline(whole: list[Launch], first: list[Launch], repeats: int) -> list[tuple[str, float, float]]:
    """The kernels of one of the `repeats` equal layers that `whole` has and `first` lacks, in order.

    For each kernel its name, how much later than the kernel before it it ends, and how long it runs: medians over the layers, in
    microseconds. The second numbers add up to the time of a layer, whatever the kernels overlap.
    """
    size = (len(whole) - len(first)) // repeats
    start = next((i for i, (a, b) in enumerate(zip(whole, first, strict=False)) if a.name != b.name), len(first))
    layers = [range(start + layer * size, start + (layer + 1) * size) for layer in range(repeats)]
    return [
        (
            whole[places[0]].name,
            statistics.median(whole[place].end - whole[place - 1].end for place in places),
            statistics.median(whole[place].end - whole[place].start for place in places),
        )
        for places in zip(*layers, strict=True)
        if places[-1] < len(whole)
    ]


def summarise(times: dict[str, KernelTime], count: int) -> dict[str, Any]:
    """JSON values, in milliseconds per step: all kernels, the collectives', and the `count` longest."""
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
