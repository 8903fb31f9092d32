"""Exact top-k with defined ties, in plain PyTorch."""

import torch


def select_topk(logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, k: int) -> torch.Tensor:
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
