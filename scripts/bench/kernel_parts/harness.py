"""The timing of one kernel, and the bounds that its time is compared with.

A case has a call, the inputs that it rotates through, and the bytes and FLOPs that the operation needs at least.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

Unit = Literal["us", "TFLOPS", "GB/s", "% of copy"]

L2_BYTES = 50e6
COPY = 3.02e12  # bytes per second of a device copy on an H100 SXM, read plus write
FP8, BF16 = 1500e12, 800e12  # dense FLOPs per second, at most, within its power limit


@dataclass(frozen=True)
class Case:
    """One line of the table.

    `run(i)` uses inputs i of 0..rotations-1 and returns its outputs, which are kept until inputs i are used again. `bytes` and
    `flops` are of one run: what must be read, written and computed. `must` and `aim` are shown unchanged, in `unit`. `graph`
    is False for calls that cannot be captured in a CUDA graph; their time includes the launches. `peak` is the rate that `flops`
    are compared with.
    """

    name: str
    run: Callable[[int], object]
    rotations: int
    bytes: int
    flops: int
    must: str = ""
    aim: str = ""
    unit: Unit = "us"
    graph: bool = True
    peak: float = FP8

    @property
    def cold(self) -> bool:
        """Whether none of a run's inputs are in L2, because the other inputs have replaced them."""
        return self.rotations * self.bytes > L2_BYTES

    def achieved(self, microseconds: float, copy: float = COPY) -> float:
        """The time in the case's unit. `copy` is the rate of a device copy on this machine."""
        if self.unit == "TFLOPS":
            return self.flops / microseconds / 1e6
        if self.unit == "GB/s":
            return self.bytes / microseconds / 1e3
        if self.unit == "% of copy":
            return 100 * self.bytes / copy / microseconds * 1e6
        return microseconds

    def roofline(self, microseconds: float, copy: float = COPY) -> float:
        """The least time that the bytes or FLOPs need, divided by the measured time."""
        return max(self.flops / self.peak, self.bytes / copy) / microseconds * 1e6


def rotations_for(size: int, at_most: int = 512) -> int:
    """The number of inputs of `size` bytes that replace each other in L2 before the first is used again.

    They are eight times the size of L2: it does not evict the oldest line first, and keeps a good part of twice its size.
    """
    return min(int(8 * L2_BYTES // max(size, 1)) + 1, at_most)


def measure(case: Case, repeats: int = 15, milliseconds: float = 2.0) -> float:
    """Microseconds of one run: the median of `repeats` timings by CUDA events.

    Each timing covers whole rotations, at least one, for about `milliseconds`, so that neither the resolution of the events nor the
    launch of the graph matters.
    """

    # Kept until replaced, so that each run writes to other memory and L2 is cold for its writes, too.
    outputs: list[object] = [None] * case.rotations

    def rotate(times: int) -> None:
        for _ in range(times):
            for i in range(case.rotations):
                outputs[i] = None
                outputs[i] = case.run(i)

    def timed(call: Callable[[], object], count: int) -> list[float]:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for start, end in pairs:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return sorted(start.elapsed_time(end) for start, end in pairs)

    rotate(1)  # compiles kernels and makes all choices that are made once
    once = timed(lambda: rotate(1), 2)[0]
    # A graph of more than a few thousand launches takes longer to build than to run.
    times = max(1, min(int(milliseconds / once), 2000 // case.rotations))
    if not case.graph:
        results = timed(lambda: rotate(times), repeats)
    else:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            rotate(times)
        graph.replay()
        results = timed(graph.replay, repeats)
    return results[repeats // 2] * 1e3 / (times * case.rotations)


def copy_rate(device: torch.device, size: int = 1 << 29) -> float:
    """Bytes per second, read plus write, of a kernel that copies `size` bytes.

    The kernel computes an absolute value, because cudaMemcpy is a sixth slower in a CUDA graph.
    """
    source = torch.randn(size // 2, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    return 2 * size / measure(Case("copy", lambda _: torch.abs(source, out=target), 1, 2 * size, 0)) * 1e6
