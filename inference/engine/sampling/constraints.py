"""Constraints on requests' next tokens: logit_bias, min_tokens and structured outputs, applied to a step's logits."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch

from ...text.grammar import Mask
from ..request import Request
from .filters import Row, on_device

EVERY = -1  # in a mask: 32 tokens that may come
_ROWS = 4  # that are done between two looks at whether the likeliest tokens have arrived


def constrain(logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """Logits fp32 [N, vocab] with the requests' biases, and −inf for tokens that a request does not allow.

    `logits` stay as they are, so that a sampling that fails can be repeated. Masks of grammars are made here, on the host: on a
    GPU, the forward pass that gives these logits is running meanwhile. An exception of a request's grammar gets out.
    """
    formed = [i for i, row in enumerate(rows) if row.request.grammar is not None]
    biased = [(i, *item) for i, row in enumerate(rows) for item in (row.request.params.logit_bias or {}).items()]
    early = [
        (i, token)
        for i, row in enumerate(rows)  # a grammar has precedence: once it is complete, only an end token may come
        if row.request.grammar is None and not may_end(row.request, row.offset)
        for token in row.request.end_ids
    ]
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


def make_masks(requests: Sequence[Request], vocab: int, pinned: bool) -> torch.Tensor:
    """int32 [M, ⌈vocab / 32⌉] on the host, `pinned` or not: a bit for each token that may come, the lowest first."""
    masks = torch.full((len(requests), -(-vocab // 32)), EVERY, dtype=torch.int32, pin_memory=pinned)
    write_masks(requests, Mask.rows(masks.numpy().view(np.uint32)))
    return masks


def write_masks(requests: Sequence[Request], masks: Sequence[Mask]) -> None:
    """Like `make_masks`, into given masks, which hold EVERY. A request without a grammar may take every token.

    One thread makes them: on the idle host of an H200, steps of 32 requests with a schema took 0.85 ms so, and 1.5 to 1.9 ms with
    the grammar engine's pool of 1 to 4 threads.
    """
    for request, mask in zip(requests, masks, strict=True):
        if request.grammar is not None:
            request.grammar.write_mask(request.tokens, len(request.prompt), mask, may_end(request))


def write_needed_masks(
    requests: Sequence[Request], masks: Sequence[Mask], likeliest: Callable[[], list[int] | None]
) -> bool:
    """Like `write_masks`, if a request may not take the likeliest token of its row: else False, and the masks hold anything.

    likeliest: gives those tokens once they have arrived, and until then None, while masks are made. From then on a request whose
    likeliest token may come gets a mask of every token: to ask the grammar about one takes a tenth of the time.
    """
    tokens: list[int] | None = None
    made = []
    for row, (request, mask) in enumerate(zip(requests, masks, strict=True)):
        if tokens is None and row % _ROWS == 0:
            tokens = likeliest()
        grammar = request.grammar
        if grammar is None or (tokens is not None and grammar.takes(request.tokens, len(request.prompt), tokens[row])):
            continue
        grammar.write_mask(request.tokens, len(request.prompt), mask, may_end(request))
        made.append(row)
    return tokens is None or not all(masks[row].holds(tokens[row]) for row in made)


def may_end(request: Request, offset: int = 0) -> bool:
    """Tell whether min_tokens have come. offset: tokens before the row in question that are drafts of its step."""
    least = request.params.min_tokens
    return not least or request.output_count + max(request.cache.pending - 1, 0) + offset >= least
