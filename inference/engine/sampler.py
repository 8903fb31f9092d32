"""Logits → tokens, for all the requests of a step at once.

Order and meaning are vLLM's: first penalties; then greedy requests take the likeliest token, and for the others temperature,
min_p, top_k and top_p apply. Randomness has no state: the random number for a token depends only on the request's seed and the
token's place in the output. So it is the same whatever else is in the batch, and again after a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..params import Request, SamplingParams, TokenLogprob

_CANDIDATES = 1024  # tokens that top_p looks at first: sorting the whole vocabulary of 129,280 takes ten times as long


@dataclass(frozen=True)
class Sample:
    """One request's sampled token, or the reason why there is none."""

    token: int = -1
    logprob: TokenLogprob | None = None  # if asked for
    error: str | None = None


def uniform(seed: int, position: int) -> float:
    """A float64 in [0, 1) for the token at `position` of the output: Philox 4x64 with the seed as key, the position as counter."""
    bits = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


@dataclass(frozen=True)
class SampledTokens:
    """The tokens that a step has sampled, on their way from the device to the host."""

    requests: Sequence[Request]
    tokens: torch.Tensor  # int64 [N], on the device
    # int64 [2, N] on the host: whether the row's logits were finite, and the token.
    _result: torch.Tensor
    # By row, on the host: the best log-probabilities, their token ids, and the sampled token's log-probability.
    _logprobs: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    _arrived: torch.cuda.Event | None  # when the tensors on the host are complete; None: they are already

    def read(self) -> list[Sample]:
        """Wait for the tokens. A row with a NaN, with +inf, or with nothing above −inf gives a Sample with an error."""
        if self._arrived is not None:
            self._arrived.synchronize()
        finite, tokens = self._result.tolist()
        samples = []
        for row, (token, request) in enumerate(zip(tokens, self.requests, strict=True)):
            if not finite[row]:
                position = len(request.tokens)
                samples.append(Sample(error=f"the model's logits for position {position} are not finite numbers"))
                continue
            logprob = None
            if request.params.logprobs is not None:
                values, ids, own = self._logprobs[row]
                count = request.params.logprobs
                top = tuple(zip(ids[:count].tolist(), values[:count].tolist(), strict=True))
                logprob = TokenLogprob(token, own.item(), top)
            samples.append(Sample(token, logprob))
        return samples


def sample(logits: torch.Tensor, requests: Sequence[Request]) -> list[Sample]:
    """Sample one token per request from its row of logits (fp32 [N, vocab]), and wait for the tokens."""
    return sample_tokens(logits, requests).read()


def needs_host_sync(params: SamplingParams) -> bool:
    """Whether sampling needs the host: penalties count the earlier tokens, and top_p may have to sort the whole vocabulary."""
    return params.penalised or (params.top_p < 1 and not params.greedy)


@torch.inference_mode()
def sample_tokens(logits: torch.Tensor, requests: Sequence[Request]) -> SampledTokens:
    """As `sample`, but a GPU is not waited for, unless a request has `needs_host_sync`.

    The sampled token is the last of the request's pending ones, or the next one if none is pending.
    """
    if not requests:
        return SampledTokens((), logits.new_empty(0, dtype=torch.int64), torch.empty(2, 0), {}, None)
    finite = logits.amax(-1).isfinite()  # the maximum of a row that holds a NaN is NaN
    rows = [row for row, request in enumerate(requests) if request.params.logprobs is not None]
    logprobs = logits[_on(logits.device, rows)].log_softmax(-1) if rows else None
    scores = penalise(logits, requests)
    tokens = scores.argmax(-1)  # the lowest id among equals
    random = [row for row, request in enumerate(requests) if not request.params.greedy]
    if random:
        chosen = [requests[row] for row in random]
        where = _on(logits.device, random)
        kept = filter_scores(scores[where], [request.params for request in chosen])
        uniforms = [uniform(request.seed, request.output_count + max(request.pending - 1, 0)) for request in chosen]
        sampled = inverse_cdf(kept, _on(logits.device, uniforms, torch.float64))
        # A row with a NaN may give an id past the vocabulary. The next step may embed it before the host finds the error.
        tokens[where] = sampled.clamp(max=logits.shape[-1] - 1)
    best = {} if logprobs is None else _best(logprobs, tokens, rows, requests)
    result = _to_host(torch.stack((finite.long(), tokens)))
    arrived = None
    if logits.device.type == "cuda":
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(logits.device))  # this thread's device may be another
    return SampledTokens(requests, tokens, result, best, arrived)


def _on(device: torch.device, values: Sequence[float], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A list as a tensor on the device, without waiting for a GPU."""
    tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host, complete once the device has reached this point."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def penalise(logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
    """The logits after repetition, then frequency, then presence penalties. `logits` stay as they are, so that a sampling that
    fails can be repeated."""
    if not any(request.params.penalised for request in requests):
        return logits
    logits, vocab = logits.clone(), logits.shape[-1]
    for row, request in enumerate(requests):
        params = request.params
        if not params.penalised:
            continue
        tokens = torch.tensor(request.tokens, device=logits.device)
        counts = torch.bincount(tokens[len(request.prompt) :], minlength=vocab)
        if params.repetition_penalty != 1:
            seen = torch.bincount(tokens, minlength=vocab) > 0  # also in the prompt
            scores = logits[row]
            penalised = torch.where(scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty)
            logits[row] = torch.where(seen, penalised, scores)
        logits[row] -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return logits


def filter_scores(scores: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Scores divided by the temperature, float64 [N, vocab], and −inf where min_p, top_k or top_p exclude a token.

    A row's distribution is ``exp`` of the row, up to a factor. The largest entry of a row is 0.
    """

    def column(values: list[float]) -> torch.Tensor:
        return _on(scores.device, values, torch.float64)[:, None]

    # Subtracting the largest score first avoids overflow at tiny temperatures.
    kept = (scores.double() - scores.amax(-1, keepdim=True)) / column([p.temperature for p in params])
    if any(p.min_p > 0 for p in params):
        # p(token) >= min_p · p(likeliest), and the likeliest token's entry is 0.
        floor = column([p.min_p for p in params]).log()
        kept = kept.masked_fill(kept < floor, -torch.inf)
    vocab = scores.shape[-1]
    some = [row for row, p in enumerate(params) if 0 < p.top_k < vocab or p.top_p < 1]
    if some:
        rows = _on(scores.device, some)
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
        last = _on(device, [min(k, count) - 1 for k in top_k])[:, None]
        unlimited = _on(device, [k >= vocab for k in top_k], torch.bool)[:, None]
        floor = ordered.gather(-1, last).masked_fill(unlimited, -torch.inf)
        scores = scores.masked_fill(scores < floor, -torch.inf)
        ordered = ordered.masked_fill(ordered < floor, -torch.inf)
    if all(p == 1 for p in top_p):
        return scores
    fractions = _on(device, top_p, torch.float64)[:, None]
    target = fractions * scores.exp().sum(-1, keepdim=True)
    mass = ordered.exp().cumsum(-1)
    if count < vocab and (mass[:, -1:] < target).any():  # a flat distribution: there are too few candidates
        ordered = scores.sort(descending=True).values
        mass = ordered.exp().cumsum(-1)
    needed = (
        (mass < target).sum(-1, keepdim=True).clamp(max=ordered.shape[-1] - 1)
    )  # index of the token that reaches it
    return scores.masked_fill((scores < ordered.gather(-1, needed)) & (fractions < 1), -torch.inf)


def inverse_cdf(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """int64 [N]: the first token, by id, whose cumulative mass exceeds uniforms [N] · total mass (inverse CDF)."""
    mass = scores.exp().cumsum(-1)
    total = mass[:, -1]
    # u < 1, but the product may round up to the total, which no cumulative mass exceeds.
    point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(mass, point[:, None], right=True)[:, 0]


def _best(
    logprobs: torch.Tensor, tokens: torch.Tensor, rows: Sequence[int], requests: Sequence[Request]
) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """By row: the best log-probabilities, their ids, and the sampled token's. For the requests that ask for them."""
    count = max(requests[row].params.logprobs or 0 for row in rows)
    values, ids = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
    own = logprobs.gather(1, tokens[_on(tokens.device, rows)][:, None])[:, 0]
    return dict(zip(rows, zip(_to_host(values), _to_host(ids), _to_host(own), strict=True), strict=True))
