"""Logits → tokens, for all the requests of a step at once.

Order and meaning are vLLM's: first constraints and penalties; then greedy requests take the likeliest token, and for the others
temperature, min_p, top_k and top_p apply. Randomness has no state: a token is the likeliest after noise that depends only on the
request's seed, the token's place in the output, and its id, whatever else is in the batch.

A request may have drafts: guesses of its next tokens, which the step has computed after its last token. Each of its rows of logits
is sampled as if the drafts before it were the request's tokens. From the first draft that differs from the token sampled in its
place on, drafts and rows are dropped. So steps with drafts give the same tokens as steps without.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...completion import TokenLogprob
from ...params import SamplingParams
from ..request import Request
from .constraints import constrain
from .filters import Row, filter_scores, on_device, penalise, to_host
from .noise import DraftNoise, gumbel, signed


@dataclass(frozen=True)
class Sample:
    """One request's sampled token, or the reason why there is none."""

    token: int = -1
    logprob: TokenLogprob | None = None  # if asked for
    error: str | None = None
    drafted: bool = False  # the token was guessed, and the guess has proved right


@dataclass(frozen=True)
class Drafts:
    """The drafts of a step's sampling requests, in their order."""

    counts: Sequence[int]  # [M]
    tokens: torch.Tensor  # int64 [M, K] on the device; request i's are the first counts[i] of row i

    def of(self, request: int) -> "Drafts":
        return Drafts((self.counts[request],), self.tokens[request : request + 1])


@dataclass(frozen=True)
class SampledTokens:
    """The tokens that a step has sampled, on their way from the device to the host."""

    requests: Sequence[Request]
    counts: Sequence[int]  # rows of each request
    tokens: torch.Tensor  # int64 [N], by row, on the device
    # int64 [M] on the device: the number of right drafts of each request, if there are any.
    accepted: torch.Tensor | None
    # int64 on the host: by row, whether its logits were finite; by row, the token; then `accepted`.
    _result: torch.Tensor
    # By row, on the host: the best log-probabilities, their token ids, and the sampled token's log-probability.
    _logprobs: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    _arrived: torch.cuda.Event | None  # when the tensors on the host are complete; None: they are already

    def read(self) -> list[list[Sample]]:
        """Wait for each request's tokens. A row with a NaN, with +inf, or with nothing above −inf gives an error."""
        if self._arrived is not None:
            self._arrived.synchronize()
        values, count = self._result.tolist(), len(self.tokens)
        finite, tokens, accepted = values[:count], values[count : 2 * count], values[2 * count :]
        accepted, samples, first = accepted or [0] * len(self.counts), [], 0
        for request, rows, right in zip(self.requests, self.counts, accepted, strict=True):
            own: list[Sample] = []
            for offset, row in enumerate(range(first, first + right + 1)):
                if not finite[row]:
                    own.append(ill_logits(request, offset))
                    break
                own.append(self._sample(request, row, tokens[row], offset < right))
            samples.append(own)
            first += rows
        return samples

    def _sample(self, request: Request, row: int, token: int, drafted: bool) -> Sample:
        count = request.params.logprobs
        if count is None:
            return Sample(token, drafted=drafted)
        values, ids, own = self._logprobs[row]
        top = tuple(zip(ids[:count].tolist(), values[:count].tolist(), strict=True))
        return Sample(token, TokenLogprob(token, own.item(), top), drafted=drafted)


def ill_logits(request: Request, offset: int) -> Sample:
    """Make the error that takes the place of the request's token at `offset` among the step's tokens."""
    return Sample(error=f"the model's logits for position {len(request.tokens) + offset} are not finite numbers")


def needs_host_sync(params: SamplingParams) -> bool:
    """Decide whether sampling needs the host: penalties count the earlier tokens, a grammar reads them, and top_p may have to
    sort the whole vocabulary."""
    return params.penalised or params.structured_outputs is not None or (params.top_p < 1 and not params.greedy)


def noise_key(row: Row) -> tuple[int, int]:
    """Return the inputs of a row's noise: the seed, and the token's place in the output, counting earlier steps' pending tokens."""
    request = row.request
    return signed(request.seed), request.output_count + max(request.cache.pending - 1, 0) + row.offset


@torch.inference_mode()
def sample_tokens(logits: torch.Tensor, requests: Sequence[Request], drafts: Drafts | None = None) -> SampledTokens:
    """Sample the tokens of each request from its rows of logits, fp32 [N, vocab]. Waits only if a request has `needs_host_sync`.

    A request has one row, and one more for each of its drafts. Its first token is the last of its pending ones, or the next one if
    none is pending.
    """
    counts = [1] * len(requests) if drafts is None else [count + 1 for count in drafts.counts]
    if not requests:
        return SampledTokens((), (), logits.new_empty(0, dtype=torch.int64), None, torch.empty(0), {}, None)
    rows = [
        Row(request, offset, None if drafts is None else drafts.tokens[i, :offset])
        for i, (request, count) in enumerate(zip(requests, counts, strict=True))
        for offset in range(count)
    ]
    finite = logits.amax(-1).isfinite()  # the maximum of a row that holds a NaN is NaN
    reported = [i for i, row in enumerate(rows) if row.request.params.logprobs is not None]
    logprobs = logits[on_device(logits.device, reported)].log_softmax(-1) if reported else None
    scores = logits
    if not all(request.takes_likeliest for request in requests):
        scores = penalise(constrain(logits, rows), rows)
    tokens = scores.argmax(-1)  # the lowest id among equals
    random = [i for i, row in enumerate(rows) if not row.request.params.greedy]
    if random:
        chosen = [rows[i] for i in random]
        where = on_device(logits.device, random)
        kept = filter_scores(scores[where], [row.request.params for row in chosen])
        seeds, places = on_device(logits.device, [noise_key(row) for row in chosen]).unbind(-1)
        tokens[where] = kept.add_(gumbel(seeds, places, logits.shape[-1])).argmax(-1)
    best = {} if logprobs is None else _best(logprobs, tokens, reported, [row.request for row in rows])
    accepted = None if drafts is None else _count_accepted(tokens, drafts)
    result = to_host(torch.cat([finite.long(), tokens] if accepted is None else [finite.long(), tokens, accepted]))
    arrived = None
    if logits.device.type == "cuda":
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(logits.device))  # this thread's device may be another
    return SampledTokens(requests, counts, tokens, accepted, result, best, arrived)


def draft_noise(requests: Sequence[Request], device: torch.device) -> DraftNoise:
    """Return the noise for the guesses that follow a step's sampled tokens of these requests."""
    keys = [noise_key(Row(request)) for request in requests]
    seeds, places = on_device(device, keys).reshape(-1, 2).unbind(-1)
    temperatures = [request.params.temperature for request in requests]
    return DraftNoise(any(temperatures), on_device(device, temperatures, torch.float64), seeds, places)


def _count_accepted(tokens: torch.Tensor, drafts: Drafts) -> torch.Tensor:
    """int64 [M]: how many drafts of each request are the tokens that were sampled in their places, up to the first that is not."""
    most = max(drafts.counts, default=0)
    table, ends, row = [], [], 0  # by request and draft: the row that it has to agree with
    for count in drafts.counts:
        table.append([row + min(i, count) for i in range(most)])
        ends.append([i < count for i in range(most)])
        row += count + 1
    rows = on_device(tokens.device, table).reshape(len(table), most)
    there = on_device(tokens.device, ends, torch.bool).reshape(len(table), most)
    return ((tokens[rows] == drafts.tokens[:, :most]) & there).long().cumprod(-1).sum(-1)


def _best(
    logprobs: torch.Tensor, tokens: torch.Tensor, rows: Sequence[int], requests: Sequence[Request]
) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return for each row the best log-probabilities, their ids, and the sampled token's, for the requests that ask for them."""
    count = max(requests[row].params.logprobs or 0 for row in rows)
    values, ids = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
    own = logprobs.gather(1, tokens[on_device(tokens.device, rows)][:, None])[:, 0]
    return dict(zip(rows, zip(to_host(values), to_host(ids), to_host(own), strict=True), strict=True))
