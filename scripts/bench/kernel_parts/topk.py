"""The top-k selector with the released model's 2048, which has to read the logits at least once."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from deepseek_v32.kernels.select_topk import select_topk, select_topk_slots

from .harness import Case, rotations_for

TOPK, PAGE = 2048, 64
REQUIRED = {
    (64, 32768): ("40", "20"),
    (64, 131072): ("70", "25"),
    (4096, 32768): ("900", "300"),
    (1, 131072): ("40", "15"),
}


def relu_sums(rows: int, width: int, device: torch.device) -> torch.Tensor:
    """Logits like the indexer's: weighted sums of ReLUs over 16 heads, most of which have the same exponent."""
    out = torch.zeros(rows, width, device=device)
    for _ in range(16):
        out += torch.randn(rows, width, device=device).relu_() * torch.rand(rows, 1, device=device)
    return out


def _case(
    name: str, make: Callable[[], Callable[[], object]], rows: int, width: int, must: str = "", aim: str = ""
) -> Case:
    size = 4 * rows * (width + TOPK)
    calls = [make() for _ in range(rotations_for(size))]
    return Case(name, lambda i: calls[i](), len(calls), size, 0, must, aim)


def cases(device: torch.device) -> Iterator[Case]:
    def bounds(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.zeros(rows, dtype=torch.int32, device=device)
        return starts, starts + width

    def normal(rows: int, width: int) -> Callable[[], object]:
        return partial(select_topk, torch.randn(rows, width, device=device), *bounds(rows, width), TOPK)

    def realistic(rows: int, width: int) -> Callable[[], object]:
        return partial(select_topk, relu_sums(rows, width, device), *bounds(rows, width), TOPK)

    def ties(rows: int, width: int) -> Callable[[], object]:
        logits = (torch.randn(rows, width, device=device) - 2.5).relu_()  # 0.6 % are above zero
        return partial(select_topk, logits, *bounds(rows, width), TOPK)

    def slots(rows: int, width: int) -> Callable[[], object]:
        table = torch.randperm(rows * width // PAGE, device=device).int().view(rows, -1)
        return partial(
            select_topk_slots, torch.randn(rows, width, device=device), *bounds(rows, width), TOPK, table, PAGE
        )

    def torch_topk(rows: int, width: int) -> Callable[[], object]:
        return partial(torch.topk, torch.randn(rows, width, device=device), TOPK, sorted=False)

    for (rows, width), required in REQUIRED.items():
        size = f"{rows}x{width // 1024}K"
        yield _case(f"top-k {size}", partial(normal, rows, width), rows, width, *required)
        yield _case(f"top-k {size}, sums of ReLUs", partial(realistic, rows, width), rows, width)
        yield _case(f"top-k {size}, ties at zero", partial(ties, rows, width), rows, width)
        yield _case(f"top-k {size} to slots", partial(slots, rows, width), rows, width)
        yield _case(f"torch.topk {size}", partial(torch_topk, rows, width), rows, width)
