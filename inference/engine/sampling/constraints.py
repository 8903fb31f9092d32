"""What requests demand of their next token: logit_bias, min_tokens and structured outputs, on the logits of a step."""

from collections.abc import Sequence
from functools import cache

import torch

from .filters import Row, on_device
from .grammar_masks import make_masks, may_end


def constrain(logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """Logits fp32 [N, vocab] with the requests' biases, and −inf for tokens that a request does not allow.

    `logits` stay as they are, so that a sampling that fails can be repeated. Masks of grammars are made here, on the host: on a
    GPU, the forward pass that gives these logits is running meanwhile. An exception of a request's grammar gets out.
    """
    formed = [i for i, row in enumerate(rows) if row.request.grammar is not None]
    biased = [(i, *item) for i, row in enumerate(rows) for item in (row.request.params.logit_bias or {}).items()]
    early = [(i, token) for i, row in enumerate(rows) if _is_early(row) for token in row.request.end_ids]
    if not (formed or biased or early):
        return logits
    device, all_masked = logits.device, len(formed) == len(rows)
    if biased or early or not all_masked:
        logits = logits.clone()
    if biased:
        where = [on_device(device, each) for each in zip(*((i, token) for i, token, _ in biased), strict=True)]
        values = on_device(device, [bias for _, _, bias in biased], torch.float32)
        logits.index_put_(tuple(where), values, accumulate=True)
    if early:
        logits[tuple(on_device(device, each) for each in zip(*early, strict=True))] = -torch.inf
    if formed:
        assert not any(rows[i].offset for i in formed), "requests with a grammar have no drafts"
        masks = make_masks([rows[i].request for i in formed], logits.shape[-1], device.type == "cuda")
        refused = refused_tokens(masks.to(device, non_blocking=True), logits.shape[-1])
        if all_masked:
            return logits.masked_fill(refused, -torch.inf)
        at = on_device(device, formed)
        logits[at] = logits[at].masked_fill(refused, -torch.inf)
    return logits


def refused_tokens(masks: torch.Tensor, vocab: int) -> torch.Tensor:
    """bool [M, vocab]: the tokens whose bits are 0 in masks int32 [M, ⌈vocab / 32⌉] on the device."""
    packed = masks.view(torch.uint8)
    return (packed[:, :, None] & _bits(masks.device)).flatten(1)[:, :vocab] == 0


@cache
def _bits(device: torch.device) -> torch.Tensor:
    """uint8 [8]: the bits of a byte, the lowest first."""
    return torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=device)


def _is_early(row: Row) -> bool:
    """Whether no end token may come. A grammar has the last word: when it is complete, nothing else may come."""
    return row.request.grammar is None and not may_end(row.request, row.offset)
