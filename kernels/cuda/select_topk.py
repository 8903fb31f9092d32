"""The top-k selector on Hopper: a CTA or a cluster for each row, and nearly always one pass over device memory."""

import torch

from ..build import load
from ..types import Selection
from .pdl import inputs_are_static

MAX_COLUMNS = 1 << 20  # the bitmap of a row is kept in shared memory


def select_topk(logits: torch.Tensor, starts: torch.Tensor | None, ends: torch.Tensor, k: int) -> torch.Tensor:
    return select_topk_slots(Selection(logits, starts, ends, k))


def select_topk_slots(given: Selection) -> torch.Tensor:
    logits, starts, ends, k, *slots = given
    if logits.shape[1] > MAX_COLUMNS:
        raise ValueError(
            f"logits has {logits.shape[1]} columns; expected at most {MAX_COLUMNS} for backend 'cuda'; use backend='reference'"
        )
    out = logits.new_empty(logits.shape[0], k, dtype=torch.int32)
    load("select_topk").select_topk(logits, starts, ends, out, *slots, inputs_are_static())
    return out
