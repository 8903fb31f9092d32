"""Memory and costs for the planning kernels, and the checks that all CUDA attention kernels share."""

from typing import Any

import torch

from ..build import load
from ..device import multiprocessors
from ..types import SplitPlan

BLOCK = 64  # keys
ROWS = 64  # of a CTA: kRows of attention/problem.cuh
MOST_PARTIAL_ROWS = 4096  # that parts of one block may have: more take longer to merge than a second block to compute
PART_FIELDS = 8  # int32 words of `struct Part` in attention/problem.cuh


def parts_at_once(device: torch.device, ctas: int, ctas_at_once: int = 1) -> int:
    """Return how many groups of `ctas` CTAs run on the device at once; a multiprocessor runs `ctas_at_once` CTAs."""
    return max(multiprocessors(device) * ctas_at_once // ctas, 1)


def empty_plan(queries: int, rows: int, device: torch.device, parts: int) -> SplitPlan:
    """A plan of `parts` parts for a planning kernel to fill. A group of CTAs, which holds all rows of a query, computes a part."""
    return SplitPlan(
        torch.empty(parts, PART_FIELDS, dtype=torch.int32, device=device),
        torch.empty(queries + 1, dtype=torch.int32, device=device),
        rows,
    )


def partial_results(plan: SplitPlan, value_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate the partial outputs and logsumexps of all splits. A query with n cuts has n + 1 splits."""
    splits = plan.split_offset.shape[0] - 1 + plan.parts.shape[0]
    device = plan.parts.device
    return (
        torch.empty(splits, plan.rows, value_dim, dtype=torch.float32, device=device),
        torch.empty(splits, plan.rows, dtype=torch.float32, device=device),
    )


def costs(rows: int, rows_merged: int = 32, start: int = 5) -> tuple[int, int]:
    """Return two of `struct Costs` of attention/plan.cuh.

    In this order: `start`, the start of a query, in blocks of 64 keys; a partial result, in 64ths of a block. A block takes 2 to 4
    microseconds. A 64th of that is enough to write and read `rows_merged` rows of a partial result, 2 KB each.
    """
    return start, max(rows // rows_merged, 1)


def attend_to_records(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor | None,
    sink: torch.Tensor | None,
    results: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor],
    scale: float,
    lengths_divisor: int = 1,
    plan: SplitPlan | None = None,
    in_order: bool = False,
) -> None:
    """Launch attention over the records of an FP8 cache: `sparse_decode` of sparse_decode/launch.cu, without a plan or with one.

    results: out, max_logits or None, and lse.
    """
    planned: tuple[Any, ...] = (None,) * 4
    if plan is not None:
        planned = plan.parts, plan.split_offset, *partial_results(plan, results[0].shape[-1])
    operands = q, cache, indices, lengths, sink, *results, scale, lengths_divisor
    load("sparse_decode").sparse_decode(*operands, *planned, in_order)


def check_widths(width: int, value_dim: int) -> None:
    """Raise a ValueError for head dims that the CUDA attention kernels do not support."""
    if (width, value_dim) != (576, 512):
        raise ValueError(f"head dims are {width} and {value_dim}; expected 576 and 512 for backend 'cuda'")
