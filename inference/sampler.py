"""Logits → tokens, for all the requests of a step at once.

Order and meaning are vLLM's: penalties; greedy requests take the likeliest token; then temperature, min_p, top_k, top_p.
Randomness has no state: the number that draws a token depends on the request's seed and the token's place in its output only,
so it is the same whatever else is in the batch, and again after a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .params import Request, SamplingParams, TokenLogprob

_CANDIDATES = 1024  # tokens looked at first for top_p: sorting a whole vocabulary of 129,280 takes ten times as long


@dataclass(frozen=True)
class Sample:
    """One request's draw: a token, or the reason why there is none."""

    token: int = -1
    logprob: TokenLogprob | None = None  # if asked for
    error: str | None = None


def uniform(seed: int, position: int) -> float:
    """A float64 in [0, 1) for the token at `position` of the output: Philox 4x64 keyed by the seed, counter the position."""
    bits = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


@torch.inference_mode()
def sample(logits: torch.Tensor, requests: Sequence[Request]) -> list[Sample]:
    """Draw one token for each request from its row of logits (fp32 [N, vocab]; may be overwritten).

    A row with a NaN, with +inf, or with nothing above −inf gives a Sample with an error.
    """
    if not requests:
        return []
    finite = logits.amax(-1).isfinite()  # the maximum of a row that holds a NaN is NaN
    logprobs = _logprobs(logits, requests)
    scores = penalise(logits, requests)
    tokens = scores.argmax(-1)  # the lowest id among equals
    random = [row for row, request in enumerate(requests) if not request.params.greedy]
    if random:
        rows = torch.tensor(random, device=logits.device)
        chosen = [requests[row] for row in random]
        kept = filter_scores(scores[rows], [request.params for request in chosen])
        draws = [uniform(request.seed, request.output_count) for request in chosen]
        tokens[rows] = draw(kept, torch.tensor(draws, dtype=torch.float64, device=logits.device))
    usable, drawn = torch.stack((finite.long(), tokens)).tolist()  # as a rule the only wait for the device
    samples = []
    for row, (token, request) in enumerate(zip(drawn, requests, strict=True)):
        if not usable[row]:
            position = len(request.tokens)
            samples.append(Sample(error=f"the model's logits for position {position} are not finite numbers"))
            continue
        logprob = None
        if request.params.logprobs is not None:
            values, ids, row_logprobs = logprobs[row]
            count = request.params.logprobs
            top = tuple(zip(ids[:count], values[:count], strict=True))
            logprob = TokenLogprob(token, float(row_logprobs[token]), top)
        samples.append(Sample(token, logprob))
    return samples


def penalise(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """Logits with repetition, then frequency, then presence penalties applied, in place, to the rows that have any."""
    vocab = logits.shape[-1]
    for row, request in enumerate(requests):
        params = request.params
        if not params.penalised:
            continue
        tokens = torch.tensor(request.tokens, device=logits.device)
        counts = torch.bincount(tokens[len(request.prompt) :], minlength=vocab)
        if params.repetition_penalty != 1:
            seen = torch.bincount(tokens, minlength=vocab) > 0  # in the prompt as well
            scores = logits[row]
            weaker = torch.where(scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty)
            logits[row] = torch.where(seen, weaker, scores)
        logits[row] -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return logits


def filter_scores(scores: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Scores over temperature, float64 [R, vocab], −inf where min_p, top_k or top_p rule a token out.

    ``exp`` of a row is its distribution up to a factor; the largest entry of a row is 0.
    """

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=scores.device)[:, None]

    # Subtracting the largest first keeps tiny temperatures from overflowing.
    kept = (scores.double() - scores.amax(-1, keepdim=True)) / column([p.temperature for p in params])
    if any(p.min_p > 0 for p in params):
        floor = column(
            [p.min_p for p in params]
        ).log()  # p(token) >= min_p · p(likeliest), and log p(likeliest) is 0 here
        kept = kept.masked_fill(kept < floor, -torch.inf)
    vocab = scores.shape[-1]
    some = [row for row, p in enumerate(params) if 0 < p.top_k < vocab or p.top_p < 1]
    if some:
        rows = torch.tensor(some, device=scores.device)
        top_k = [params[row].top_k if params[row].top_k > 0 else vocab for row in some]
        kept[rows] = _keep_top(kept[rows], top_k, column([params[row].top_p for row in some]))
    return kept


def _keep_top(scores: torch.Tensor, top_k: list[int], top_p: torch.Tensor) -> torch.Tensor:
    """−inf outside the top k, then outside the likeliest tokens that reach mass top_p [R, 1]; equals of the last one stay."""
    vocab = scores.shape[-1]
    limited = [k for k in top_k if k < vocab]
    count = min(vocab, max([_CANDIDATES, *limited]))
    ordered = scores.topk(count).values
    if limited:
        last = torch.tensor([min(k, count) - 1 for k in top_k], device=scores.device)[:, None]
        floor = ordered.gather(-1, last)
        floor[[k >= vocab for k in top_k]] = -torch.inf
        scores = scores.masked_fill(scores < floor, -torch.inf)
        ordered = ordered.masked_fill(ordered < floor, -torch.inf)
    if (top_p == 1).all():
        return scores
    wanted = top_p * scores.exp().sum(-1, keepdim=True)
    mass = ordered.exp().cumsum(-1)
    if count < vocab and (mass[:, -1:] < wanted).any():  # a flat distribution: the candidates were too few
        ordered = scores.sort(descending=True).values
        mass = ordered.exp().cumsum(-1)
    needed = (mass < wanted).sum(-1, keepdim=True).clamp(max=ordered.shape[-1] - 1)  # as many do not reach it yet
    return scores.masked_fill((scores < ordered.gather(-1, needed)) & (top_p < 1), -torch.inf)


def draw(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """int64 [R]: the first token, in order of ids, whose cumulative mass exceeds uniforms [R] of the total (inverse CDF)."""
    mass = scores.exp().cumsum(-1)
    total = mass[:, -1]
    # u < 1, but the product may round up to the total, which no token's mass exceeds.
    point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(mass, point[:, None], right=True)[:, 0]


def _logprobs(
    logits: torch.Tensor, requests: Sequence[Request]
) -> dict[int, tuple[list[float], list[int], torch.Tensor]]:
    """By row: the best log-probabilities, their ids, and the whole row's, for the requests that want them."""
    rows = [row for row, request in enumerate(requests) if request.params.logprobs is not None]
    if not rows:
        return {}
    logprobs = logits[torch.tensor(rows, device=logits.device)].log_softmax(-1)
    count = max(requests[row].params.logprobs or 0 for row in rows)
    values, ids = logprobs.topk(min(count, logits.shape[-1]), dim=-1)
    return {row: (values[i].tolist(), ids[i].tolist(), logprobs[i]) for i, row in enumerate(rows)}
