"""Logits and log-probabilities of a given text (teacher forcing), for evaluations by likelihood and for `echo` with `logprobs`."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import torch

from ...completion import TokenLogprob
from ...token_selection import TokenSelection
from ..engine import Engine
from ..fault import log_fault
from ..request import Request
from ..scheduling.batch import Batch
from ..step import Step

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

CHUNK_BYTES = 2**27  # of fp32 logits at a time; 128 MiB are 259 tokens of the released model's vocabulary


def prompt_steps(
    engine: Engine,
    request: Request,
    count: int,
    chunk: int,
    first: int = 0,
    reuse: bool = False,
    draft_tokens: int | None = None,
) -> Generator[Step]:
    """Run the request's first `count` tokens, `chunk` tokens a step. Each step has logits after each of its T tokens.

    first: tokens before this one get no logits, so the first chunks may have T = 0. reuse: with pages that the pool has for tokens
    before `first`; otherwise none is reused. No page can be reused afterwards. draft_tokens: see Batch. All chunks run
    between two steps of the engine: running requests keep their place, but the latest ones are preempted if their pages are
    needed. The pages are free again once the iterator is exhausted or closed.
    """
    engine.drain()
    try:
        if reuse:
            request.cache.pages, *_ = engine.pool.match(request.tokens[: min(first, request.shareable)])
        request.cache.admission += 1  # for observers, which verify the pages that a request reuses
        reused = len(request.cache.pages) * engine.pool.page_size
        missing = engine.pool.pages_for(count) - len(request.cache.pages)
        request.cache.pages = request.cache.pages + engine.scheduler.take_pages(missing)
    except BaseException:
        engine.recover()
        raise
    try:
        for start in range(reused, count, chunk):
            request.cache.computed = start
            size = min(chunk, count - start)
            rows = min(max(start + size - first, 0), size)
            decodes = int(size == 1)
            yield engine.runner.run(Batch((request,), (start,), (size,), decodes, (rows,), draft_tokens=draft_tokens))
    finally:
        try:
            engine.pool.release(request.cache.pages)
        except Exception:
            log_fault(log, "freeing the pages of a scored prompt failed")
            engine.recover()


def all_logits(engine: Engine, token_ids: Sequence[int], chunk: int | None = None) -> torch.Tensor:
    """fp32 [T, vocab] on the CPU: the logits after every token, `chunk` tokens per step. ValueError as `RequestMaker`."""
    request = engine.requests.from_tokens(token_ids, min_new_tokens=0)
    chunk = engine.limits.max_batch_tokens if chunk is None else chunk
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; expected at least 1")
    logits = torch.empty(len(request.tokens), engine.config.vocab_size)
    with closing(prompt_steps(engine, request, len(request.tokens), chunk)) as steps:
        for rows, step in zip(logits.split(chunk), steps, strict=True):
            rows.copy_(step.logits)
            raise_observed(engine, request)
    return logits


def raise_observed(engine: Engine, request: Request) -> None:
    """Raise RuntimeError if an observer has found a fault in the request's latest chunk, whose logits have arrived."""
    error = engine.end_observed().get(request.id)
    if error is not None:
        raise RuntimeError(error)


def score(
    engine: Engine, request: Request, top: int, is_over: Callable[[], bool] = lambda: False
) -> list[TokenLogprob]:
    """log p(token | tokens before it) for every token of the prompt but the first, with the `top` likeliest tokens at its place.

    It works chunk by chunk, so that the logits of a long prompt need not fit the memory. TimeoutError if `is_over`
    says so before a chunk; FloatingPointError for logits that are not finite.
    """
    chunk = max(min(CHUNK_BYTES // (4 * engine.config.vocab_size), engine.limits.max_batch_tokens), 1)
    count = len(request.tokens) - 1
    scores: list[TokenLogprob] = []
    with closing(prompt_steps(engine, request, count, chunk)) as steps:
        while len(scores) < count:
            if is_over():
                raise TimeoutError("the request's time is over")
            logits = next(steps).logits
            check_finite(logits)
            following = request.tokens[len(scores) + 1 : len(scores) + 1 + len(logits)]
            scores += token_logprobs(logits, following, top)
            raise_observed(engine, request)
    return scores


def check_finite(logits: torch.Tensor) -> None:
    """Raise FloatingPointError for logits that are not finite."""
    if not logits.amax(-1).isfinite().all():  # as in sampling: the maximum of a row that holds a NaN is NaN
        raise FloatingPointError("the model's logits for the prompt are not finite numbers")


def token_logprobs(logits: torch.Tensor, following: Sequence[int], top: int) -> list[TokenLogprob]:
    """log p of the token that follows each row of logits fp32 [T, vocab], and the `top` likeliest ones."""
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(following, dtype=torch.long, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = logprobs.topk(min(top, logits.shape[-1]), dim=-1)
    return [
        TokenLogprob(token, logprob, tuple(zip(row_ids, row_values, strict=True)))
        for token, logprob, row_ids, row_values in zip(following, chosen, ids.tolist(), values.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class AnswerScores:
    """One entry for each token of the answer."""

    logprobs: list[TokenLogprob] = field(default_factory=list)
    selections: list[TokenSelection] = field(default_factory=list)


def score_answer(
    engine: Engine,
    request: Request,
    answer: Sequence[int],
    top: int = 0,
    is_over: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, of: None,
) -> AnswerScores:
    """log p(token | tokens before it) of the answer's tokens, with the `top` likeliest tokens at their place.

    request: its prompt ends in the answer without its last token. Pages are reused for the tokens before the answer's first query,
    as far as the request's policy allows, and the whole runs between two steps of the engine. progress: called with the tokens
    done and all tokens. FloatingPointError for logits that are not finite; TimeoutError if `is_over` says so before a chunk.
    """
    count, chunk = len(request.tokens), engine.limits.max_batch_tokens
    first = count - len(answer)
    scores = AnswerScores()
    request.inspect = True
    with closing(prompt_steps(engine, request, count, chunk, first, reuse=True)) as steps:
        for step in steps:
            logits, done = step.logits, len(scores.logprobs)
            check_finite(logits)
            scores.logprobs.extend(token_logprobs(logits, answer[done : done + len(logits)], top))
            for offset in range(len(logits)):
                assert step.selections is not None
                selection = step.selections.of(request, offset)
                assert selection is not None
                scores.selections.append(selection)
            raise_observed(engine, request)
            progress(min(request.cache.computed + chunk, count), count)
            if is_over():
                raise TimeoutError("the request's time is over")
    return scores
