"""Exact top-k with a defined order of equal values, in plain PyTorch."""

import torch

from ..types import Selection


def select_topk(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> torch.Tensor:
    starts = torch.zeros_like(ends) if starts is None else starts
    rows, columns = logits.shape
    positions = torch.arange(columns, device=logits.device)
    eligible = (positions >= starts[:, None]) & (positions < ends[:, None]) & (logits > float("-inf"))  # false for NaN
    # -inf marks values that cannot be selected. Adding 0.0 turns -0.0 into +0.0, so that both are equal.
    scores = torch.where(eligible, logits + 0.0, float("-inf"))
    count = min(k, columns)
    # The order of equal values does not change the k-th largest value. Of the positions with that value, the lowest are selected.
    threshold = scores.topk(count, sorted=True).values[:, -1:]
    above = scores > threshold
    at_threshold = (scores == threshold) & eligible
    missing = count - above.sum(1, keepdim=True)
    if bool((at_threshold.sum(1, keepdim=True) > missing).any()):
        at_threshold &= at_threshold.cumsum(1, dtype=torch.int32) <= missing
    row, position = (above | at_threshold).nonzero(as_tuple=True)  # by row, then by position
    first = torch.searchsorted(row, torch.arange(rows, device=row.device))
    out = torch.full((rows, k), -1, dtype=torch.int32, device=logits.device)
    out[row, torch.arange(row.numel(), device=row.device) - first[row]] = (position - starts[row]).int()
    return out


def positions_to_slots(positions: torch.Tensor, block_table: torch.Tensor, page_size: int) -> torch.Tensor:
    if not block_table.shape[1]:
        return torch.full_like(positions, -1)
    inside = positions.clamp(0, block_table.shape[1] * page_size - 1)
    page = torch.div(inside, page_size, rounding_mode="floor")
    slots = block_table.gather(1, page.long()) * page_size + positions % page_size
    return torch.where(positions < 0, -1, slots).int()


def select_topk_slots(given: Selection) -> torch.Tensor:
    logits, starts, ends, k, block_table, page_size, record = given
    assert block_table is not None
    positions = select_topk(logits, starts, ends, k)
    if record is not None:
        write_record(positions, logits, record)
    return positions_to_slots(positions, block_table, page_size)


def write_record(positions: torch.Tensor, logits: torch.Tensor, record: torch.Tensor) -> None:
    """Positions int32 [T, K] and the bits of their logits -> record int32 [T, 2, K]."""
    record[:, 0] = positions
    record[:, 1] = logits.gather(1, positions.clamp_min(0).long()).view(torch.int32)
