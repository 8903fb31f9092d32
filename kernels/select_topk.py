"""The top-k selector: which positions each query attends to."""

import torch

from .checks import check_tensor
from .choice import choose


def select_topk(
    logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, k: int, backend: str = "auto"
) -> torch.Tensor:
    """The k largest of logits[i, starts[i]:ends[i]] -> int32 [T, k], positions relative to starts[i], in no promised order.

    Exact in fp32 order; of equal values (-0.0 equals +0.0) the lowest position wins; -inf and NaN are never chosen; a row with
    fewer candidates is filled up with -1 at its end. logits fp32 [T, S]; starts, ends int32 [T].
    """
    check_tensor("logits", logits, (None, None), torch.float32)
    check_tensor("starts", starts, (logits.shape[0],), torch.int32, logits.device)
    check_tensor("ends", ends, (logits.shape[0],), torch.int32, logits.device)
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    if logits.numel() == 0:
        return torch.full((logits.shape[0], k), -1, dtype=torch.int32, device=logits.device)
    result: torch.Tensor = choose("select_topk", logits, backend)(logits, starts, ends, k)
    return result


def positions_to_slots(positions: torch.Tensor, block_table: torch.Tensor, page_size: int) -> torch.Tensor:
    """Context positions int32 [R, K] (-1: none) -> cache slots int32 [R, K], through each row's pages int32 [R, pages]."""
    page = torch.div(positions.clamp_min(0), page_size, rounding_mode="floor")
    slots = block_table.gather(1, page.long()) * page_size + positions % page_size
    return torch.where(positions < 0, -1, slots).int()
