"""The top-k selector: which positions each query attends to."""

import torch

from .checks import check_tensor
from .reference.select_topk import positions_to_slots as positions_to_slots
from .registry import Preference, choose


def _check(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> None:
    check_tensor("logits", logits, (None, None), torch.float32)
    if starts is not None:
        check_tensor("starts", starts, (logits.shape[0],), torch.int32, logits.device)
    check_tensor("ends", ends, (logits.shape[0],), torch.int32, logits.device)
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")


def _nothing(logits: torch.Tensor, k: int) -> torch.Tensor:
    return torch.full((logits.shape[0], k), -1, dtype=torch.int32, device=logits.device)


def select_topk(
    logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """The k largest of logits[i, starts[i]:ends[i]] -> int32 [T, k], positions relative to starts[i], in no promised order.

    Exact in fp32 order; of equal values (-0.0 equals +0.0) the lowest position wins; -inf and NaN are never chosen; a row with
    fewer candidates is filled up with -1 at its end. logits fp32 [T, S]; starts, ends int32 [T]; starts None: all zero.
    """
    _check(logits, starts, ends, k)
    if logits.numel() == 0:
        return _nothing(logits, k)
    result: torch.Tensor = choose("select_topk", logits, backend)(logits, starts, ends, k)
    return result


def select_topk_slots(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    k: int,
    block_table: torch.Tensor,
    page_size: int,
    *,
    backend: str | Preference = "auto",
) -> torch.Tensor:
    """As select_topk, but cache slots instead of positions -> int32 [T, k], -1 for none.

    Position p of row i is slot block_table[i, p // page_size] * page_size + p % page_size. block_table int32 [T, pages] has pages
    for every position of its row.
    """
    _check(logits, starts, ends, k)
    check_tensor("block_table", block_table, (logits.shape[0], None), torch.int32, logits.device)
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}, expected at least 1")
    if logits.numel() == 0:
        return _nothing(logits, k)
    body = choose("select_topk_slots", logits, backend)
    result: torch.Tensor = body(logits, starts, ends, k, block_table, page_size)
    return result
