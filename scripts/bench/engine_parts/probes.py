"""What the card at hand reaches: the constants of a roofline."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

REPEATS = 20
BYTES = 4 << 30  # of each buffer, far more than the L2 cache holds
SIZE = 8192  # rows, columns and depth of the products


@dataclass(frozen=True)
class Rates:
    """Bytes a second that are read or copied, and FLOPs a second of products in bf16 and in FP8 without block scales."""

    read: float
    copy: float
    bf16: float
    fp8: float

    @property
    def bandwidth(self) -> float:
        """The higher of the two rates of memory."""
        return max(self.read, self.copy)

    def describe(self) -> dict[str, str]:
        return {
            "read": f"{self.read / 1e12:.2f} TB/s",
            "copy": f"{self.copy / 1e12:.2f} TB/s",
            "bf16 products": f"{self.bf16 / 1e12:.0f} TFLOPS",
            "FP8 products": f"{self.fp8 / 1e12:.0f} TFLOPS",
        }


def _seconds(run: Callable[[], object]) -> float:
    """Median time of `run` on the GPU."""
    times = []
    for repeat in range(REPEATS + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if repeat >= 3:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def measure_rates(device: torch.device) -> Rates:
    """Probe the card: a sum over memory, a copy, and products of random square matrices."""
    source = torch.randn(BYTES // 4, device=device)
    target = torch.empty_like(source)
    read = BYTES / _seconds(lambda: source.sum())
    copy = 2 * BYTES / _seconds(lambda: target.copy_(source))
    source = target = source.new_empty(0)
    a, b = (torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16) for _ in range(2))
    flops = 2 * SIZE**3
    bf16 = flops / _seconds(lambda: a @ b)
    one = torch.ones((), device=device)
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T
    fp8 = flops / _seconds(lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16, use_fast_accum=True))
    torch.cuda.empty_cache()
    return Rates(read, copy, bf16, fp8)
