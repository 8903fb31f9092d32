"""What requests demand of their next token: logit_bias, min_tokens and structured outputs, on the logits of a step."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from .filters import Row, on_device


def constrain(logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """Logits fp32 [N, vocab] with the requests' biases, and −inf for tokens that a request does not allow.

    `logits` stay as they are, so that a sampling that fails can be repeated. Masks of grammars are made here, on the host: on a
    GPU, the forward pass that gives these logits is running meanwhile. An exception of a request's grammar gets out.
    """
    masks = [(i, _mask(row)) for i, row in enumerate(rows) if row.request.grammar is not None]
    biased = [(i, *item) for i, row in enumerate(rows) for item in (row.request.params.logit_bias or {}).items()]
    early = [(i, token) for i, row in enumerate(rows) if _is_early(row) for token in row.request.end_ids]
    if not (masks or biased or early):
        return logits
    device, all_masked = logits.device, len(masks) == len(rows)
    if biased or early or not all_masked:
        logits = logits.clone()
    if biased:
        where = [on_device(device, each) for each in zip(*((i, token) for i, token, _ in biased), strict=True)]
        values = on_device(device, [bias for _, _, bias in biased], torch.float32)
        logits.index_put_(tuple(where), values, accumulate=True)
    if early:
        logits[tuple(on_device(device, each) for each in zip(*early, strict=True))] = -torch.inf
    if masks:
        packed = torch.from_numpy(np.stack([mask for _, mask in masks]).view(np.uint8))  # [M, bytes]
        packed = packed.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else packed
        refused = (packed[:, :, None] & _bits(device)).flatten(1)[:, : logits.shape[-1]] == 0
        if all_masked:
            return logits.masked_fill(refused, -torch.inf)
        at = on_device(device, [i for i, _ in masks])
        logits[at] = logits[at].masked_fill(refused, -torch.inf)
    return logits


@cache
def _bits(device: torch.device) -> torch.Tensor:
    """uint8 [8]: the bits of a byte, the lowest first."""
    return torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=device)


def _mask(row: Row) -> np.ndarray:
    assert row.request.grammar is not None and not row.offset, "requests with a grammar have no drafts"
    return row.request.grammar.mask(row.request.output, _may_end(row))


def _is_early(row: Row) -> bool:
    """Whether no end token may come. A grammar has the last word: when it is complete, nothing else may come."""
    return row.request.grammar is None and not _may_end(row)


def _may_end(row: Row) -> bool:
    """Whether min_tokens have come."""
    request = row.request
    return request.output_count + max(request.pending - 1, 0) + row.offset >= request.params.min_tokens
