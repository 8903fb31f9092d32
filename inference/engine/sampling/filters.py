"""Penalties and filters on logits, before a token is drawn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...params import SamplingParams
from ..request import Request

_CANDIDATES = 1024  # tokens that top_p looks at first: sorting the whole vocabulary of 129,280 takes ten times as long
_SUMMANDS = 16384  # torch splits sums of more than 32,768


class Row(NamedTuple):
    """One row of logits: for the request's token after its first `offset` drafts."""

    request: Request
    offset: int = 0
    drafts: torch.Tensor | None = None  # int64 [offset] on the device


def penalise(logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    """The logits after repetition, then frequency, then presence penalties. `logits` stay as they are, so that a sampling that
    fails can be repeated."""
    if not any(row.request.params.penalised for row in rows):
        return logits
    logits, vocab = logits.clone(), logits.shape[-1]
    for i, (request, offset, drafts) in enumerate(rows):
        params = request.params
        if not params.penalised:
            continue
        tokens = torch.tensor(request.tokens, device=logits.device)
        if offset and drafts is not None:
            tokens = torch.cat((tokens, drafts))
        counts = torch.bincount(tokens[len(request.prompt) :], minlength=vocab)
        if params.repetition_penalty != 1:
            seen = torch.bincount(tokens, minlength=vocab) > 0  # also in the prompt
            scores = logits[i]
            penalised = torch.where(scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty)
            logits[i] = torch.where(seen, penalised, scores)
        logits[i] -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return logits


def filter_scores(scores: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Scores divided by the temperature, float64 [N, vocab], at most 0; −inf where min_p, top_k or top_p exclude a token."""

    def column(values: list[float]) -> torch.Tensor:
        return on_device(scores.device, values, torch.float64)[:, None]

    # Subtracting the largest score first avoids overflow at tiny temperatures.
    kept = (scores.double() - scores.amax(-1, keepdim=True)) / column([p.temperature for p in params])
    if any(p.min_p > 0 for p in params):
        # p(token) >= min_p · p(likeliest), and the likeliest token's entry is 0.
        floor = column([p.min_p for p in params]).log()
        kept = kept.masked_fill(kept < floor, -torch.inf)
    vocab = scores.shape[-1]
    some = [row for row, p in enumerate(params) if 0 < p.top_k < vocab or p.top_p < 1]
    if some:
        rows = on_device(scores.device, some)
        top_k = [params[row].top_k if params[row].top_k > 0 else vocab for row in some]
        kept[rows] = _keep_top(kept[rows], top_k, [params[row].top_p for row in some])
    return kept


def _keep_top(scores: torch.Tensor, top_k: list[int], top_p: list[float]) -> torch.Tensor:
    """−inf outside the top k, then outside the likeliest tokens that reach mass top_p. Tokens that tie with the last one stay."""
    vocab, device = scores.shape[-1], scores.device
    limited = [k for k in top_k if k < vocab]
    count = min(vocab, max([_CANDIDATES, *limited]))
    ordered = scores.topk(count).values
    if limited:
        last = on_device(device, [min(k, count) - 1 for k in top_k])[:, None]
        unlimited = on_device(device, [k >= vocab for k in top_k], torch.bool)[:, None]
        floor = ordered.gather(-1, last).masked_fill(unlimited, -torch.inf)
        scores = scores.masked_fill(scores < floor, -torch.inf)
        ordered = ordered.masked_fill(ordered < floor, -torch.inf)
    if all(p == 1 for p in top_p):
        return scores
    fractions = on_device(device, top_p, torch.float64)[:, None]
    target = fractions * _sums(scores.exp())[:, None]
    mass = ordered.exp().cumsum(-1)
    if count < vocab and (mass[:, -1:] < target).any():  # a flat distribution: there are too few candidates
        ordered = scores.sort(descending=True).values
        mass = ordered.exp().cumsum(-1)
    # The index of the token that reaches it.
    needed = (mass < target).sum(-1, keepdim=True).clamp(max=ordered.shape[-1] - 1)
    return scores.masked_fill((scores < ordered.gather(-1, needed)) & (fractions < 1), -torch.inf)


def _sums(x: torch.Tensor) -> torch.Tensor:
    """Row sums of x [N, V]. In parts, because torch splits a long sum among a CPU's threads if it is the only one."""
    return torch.stack([part.sum(-1) for part in x.split(_SUMMANDS, -1)], -1).sum(-1)


def on_device(device: torch.device, values: Sequence[Any], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Copy a list to a tensor on the device, without waiting for a GPU."""
    tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host, complete once the device has reached this point."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
