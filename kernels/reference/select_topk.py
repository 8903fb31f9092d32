"""Exact top-k with defined ties, in plain PyTorch."""

import torch


def select_topk(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> torch.Tensor:
    starts = torch.zeros_like(ends) if starts is None else starts
    rows, columns = logits.shape
    positions = torch.arange(columns, device=logits.device)
    eligible = (positions >= starts[:, None]) & (positions < ends[:, None]) & (logits > float("-inf"))  # false for NaN
    # -inf marks what cannot be chosen; adding 0.0 turns -0.0 into +0.0, so that the two tie.
    scores = torch.where(eligible, logits + 0.0, float("-inf"))
    count = min(k, columns)
    # The k-th largest value does not depend on how ties are broken; positions at that value are taken lowest first.
    threshold = scores.topk(count, sorted=True).values[:, -1:]
    above = scores > threshold
    level = (scores == threshold) & eligible
    room = count - above.sum(1, keepdim=True)
    if bool((level.sum(1, keepdim=True) > room).any()):
        level &= level.cumsum(1, dtype=torch.int32) <= room
    row, position = (above | level).nonzero(as_tuple=True)  # by row, then by position
    first = torch.searchsorted(row, torch.arange(rows, device=row.device))
    out = torch.full((rows, k), -1, dtype=torch.int32, device=logits.device)
    out[row, torch.arange(row.numel(), device=row.device) - first[row]] = (position - starts[row]).int()
    return out


def positions_to_slots(positions: torch.Tensor, block_table: torch.Tensor, page_size: int) -> torch.Tensor:
    """Context positions int32 [R, K] (-1: none) -> cache slots int32 [R, K], through each row's pages int32 [R, pages]."""
    page = torch.div(positions.clamp_min(0), page_size, rounding_mode="floor")
    slots = block_table.gather(1, page.long()) * page_size + positions % page_size
    return torch.where(positions < 0, -1, slots).int()


def select_topk_slots(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    k: int,
    block_table: torch.Tensor,
    page_size: int,
) -> torch.Tensor:
    return positions_to_slots(select_topk(logits, starts, ends, k), block_table, page_size)
