"""The top-k selector, which chooses the positions that each query attends to."""

import torch

from .checks import check_pages, check_tensor, check_values
from .reference import select_topk as reference
from .registry import Preference, choose
from .types import Selection


def positions_to_slots(positions: torch.Tensor, block_table: torch.Tensor, page_size: int) -> torch.Tensor:
    """Context positions int32 [R, K] (-1: none) -> cache slots int32 [R, K], by each row's block table int32 [R, pages]."""
    check_tensor("positions", positions, (None, None), torch.int32)
    check_tensor("block_table", block_table, (positions.shape[0], None), torch.int32, positions.device)
    pages = block_table.shape[1]
    check_values(
        "positions", positions, pages * page_size - 1, "block_table has {} pages of {}", pages, page_size, least=-1
    )
    if positions.is_cpu and positions.numel() and bool((block_table < 0).any()):
        check_pages("positions", positions.amax(1) + 1, block_table, page_size, pages=None)
    return reference.positions_to_slots(positions, block_table, page_size)


def _check(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> None:
    check_tensor("logits", logits, (None, None), torch.float32)
    if starts is not None:
        check_tensor("starts", starts, (logits.shape[0],), torch.int32, logits.device)
    check_tensor("ends", ends, (logits.shape[0],), torch.int32, logits.device)
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")


def _no_positions(logits: torch.Tensor, k: int) -> torch.Tensor:
    return torch.full((logits.shape[0], k), -1, dtype=torch.int32, device=logits.device)


def select_topk(
    logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """The positions of the k largest of logits[t, starts[t]:ends[t]], relative to starts[t] -> int32 [T, k], ascending.

    The selection is exact in fp32. Of equal values (-0.0 equals +0.0) the lowest position is selected; -inf and NaN never are. A
    row with fewer than k candidates ends in -1. logits fp32 [T, S]; starts, ends int32 [T]; starts None: all zero.
    """
    _check(logits, starts, ends, k)
    if logits.numel() == 0:
        return _no_positions(logits, k)
    return choose("select_topk", logits, backend)(logits, starts, ends, k)


def select_topk_slots(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    k: int,
    block_table: torch.Tensor,
    page_size: int,
    record: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """Return cache slots instead of select_topk's positions -> int32 [T, k], -1 for none.

    record: int32 [T, 2, k], whose rows may lie apart; only without starts. It is filled in the same launch, with the positions in
    ascending order and the bits of their logits; where there is no position, with -1 and anything.
    Position p of row t is slot block_table[t, p // page_size] * page_size + p % page_size. block_table int32 [T, pages] covers all
    positions of each row (checks.py: values outside).
    """
    _check(logits, starts, ends, k)
    check_tensor("block_table", block_table, (logits.shape[0], None), torch.int32, logits.device)
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}; expected at least 1")
    if record is not None:
        check_tensor("record", record, (logits.shape[0], 2, k), torch.int32, logits.device)
        if starts is not None or (record.numel() and record.stride()[1:] != (k, 1)):
            raise ValueError(f"record has strides {record.stride()}; expected (any, {k}, 1), and no starts")
    held = block_table.shape[1] * page_size
    if ends.is_cpu:
        counts = ends.clamp(max=logits.shape[1]) - (0 if starts is None else starts)
        name = "ends" if starts is None else "ends - starts"
        check_pages(name, counts.clamp(min=0), block_table, page_size, pages=None)
    elif held < logits.shape[1]:
        ends = ends.minimum(torch.full_like(ends, held) if starts is None else starts + held)
    if logits.numel() == 0:
        if record is not None:
            record.fill_(-1)
        return _no_positions(logits, k)
    given = Selection(logits, starts, ends, k, block_table, page_size, record)
    return choose("select_topk_slots", logits, backend)(given)
