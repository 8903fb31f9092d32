"""Logits and log-probabilities of a given text (teacher forcing), for evaluations by likelihood and for `echo` with `logprobs`."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch

from ....model.metadata import Selection
from ...completion import TokenLogprob
from ...params import Request
from ...token_selection import RecordedDecodes, SelectionSink, TokenSelection
from ..engine import Engine
from ..fault import first_line, log_fault
from ..scheduling.batch import Batch

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

CHUNK_BYTES = 2**27  # of fp32 logits at a time; 128 MiB are 259 tokens of the released model's vocabulary


def prompt_logits(
    engine: Engine,
    request: Request,
    count: int,
    chunk: int,
    first: int = 0,
    reuse: bool = False,
    on_selection: SelectionSink | None = None,
) -> Generator[torch.Tensor]:
    """The logits after each of the request's first `count` tokens: fp32 [T, vocab] on the device for each chunk of T tokens.

    first: tokens before this one get no logits, so the first chunks may have T = 0. reuse: with pages that the pool has for tokens
    before `first`; otherwise none is reused. No page can be reused afterwards. on_selection: see AttentionMetadata. All chunks run
    between two steps of the engine: running requests keep their place, but the latest ones are preempted if their pages are
    needed. The pages are free again once the iterator is exhausted or closed.
    """
    engine.drain()
    try:
        if reuse:
            request.pages, *_ = engine.pool.match(request.tokens[: min(first, request.shareable)])
        reused = len(request.pages) * engine.pool.page_size
        missing = engine.pool.pages_for(count) - len(request.pages)
        request.pages = request.pages + engine.scheduler.take_pages(missing)
    except BaseException:
        engine.recover()
        raise
    try:
        for start in range(reused, count, chunk):
            request.computed = start
            size = min(chunk, count - start)
            rows = min(max(start + size - first, 0), size)
            batch = Batch((request,), (start,), (size,), decodes=int(size == 1), logit_counts=(rows,))
            # Other runners than the engine's own need not know of selections.
            yield engine.runner.run(batch) if on_selection is None else engine.runner.run(batch, on_selection)
    finally:
        try:
            engine.pool.release(request.pages)
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
    with closing(prompt_logits(engine, request, len(request.tokens), chunk)) as parts:
        for rows, part in zip(logits.split(chunk), parts, strict=True):
            rows.copy_(part)
            raise_mismatch(engine, request)
    return logits


def raise_mismatch(engine: Engine, request: Request) -> None:
    """RuntimeError if the checks of the caches have found a mismatch in the request's latest chunk, whose logits have arrived."""
    error = engine.report_mismatches().get(request.id)
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
    with closing(prompt_logits(engine, request, count, chunk)) as parts:
        while len(scores) < count:
            if is_over():
                raise TimeoutError("the request's time is over")
            logits = next(parts)
            check_finite(logits)
            following = request.tokens[len(scores) + 1 : len(scores) + 1 + len(logits)]
            scores += token_logprobs(logits, following, top)
            raise_mismatch(engine, request)
    return scores


def check_finite(logits: torch.Tensor) -> None:
    """FloatingPointError for logits that are not finite."""
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


class ScoreJob:
    """One prompt for the engine's thread to score; `future` gets one entry for each token after the first."""

    def __init__(
        self, request: Request, top: int, deadline: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """deadline: in seconds of `clock`."""
        self.future: Future[Any] = Future()
        self._request = request
        self._top = top
        self._deadline, self._clock = deadline, clock

    def work(self, engine: Engine) -> Any:
        """What `future` gets."""
        return score(engine, self._request, self._top, self.is_over)

    def is_over(self) -> bool:
        return self._clock() > self._deadline

    def run(self, engine: Engine) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.work(engine))
        except TimeoutError as error:
            self.future.set_exception(error)
        except Exception as error:
            log_fault(log, "scoring a prompt failed")
            self.future.set_exception(error)
        except BaseException as error:  # it ends the thread, but not an event loop that waits for this
            self.future.set_exception(RuntimeError(first_line(error)))
            raise

    def cancel(self) -> None:
        """End the job before its next chunk, because nobody waits for it any more. Any thread may call it."""
        self._deadline = float("-inf")

    @property
    def has_failed(self) -> bool:
        """Whether it has run, and raised."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is not None

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


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
    scores, observer = AnswerScores(), _Observer(request, first)
    parts = prompt_logits(engine, request, count, chunk, first, reuse=True, on_selection=observer)
    with closing(parts):
        for logits in parts:
            check_finite(logits)
            done = len(scores.logprobs)
            scores.logprobs.extend(token_logprobs(logits, answer[done : done + len(logits)], top))
            raise_mismatch(engine, request)
            progress(min(request.computed + chunk, count), count)
            if is_over():
                raise TimeoutError("the request's time is over")
    return AnswerScores(scores.logprobs, [observer.selections[position] for position in range(first, count)])


class _Observer:
    """Collects the selections of the queries from position `first` on; it is given those of one request alone."""

    def __init__(self, request: Request, first: int) -> None:
        self.selections = {position: TokenSelection(position) for position in range(first, len(request.tokens))}
        self._request = request

    def decodes(self, record: RecordedDecodes) -> None:
        """As SelectionSink.decodes: the last chunk may be a single token."""
        position = self._request.computed
        if position in self.selections:
            self.selections[position] = TokenSelection.read_later(position, record.rows[0], record.step)

    def __call__(self, layer: int, rows: torch.Tensor, selection: Selection) -> None:
        """As SelectionSink."""
        positions, scores, mass = (None if each is None else each.cpu().numpy() for each in selection)
        for i, row in enumerate(rows.tolist()):
            found = self.selections.get(self._request.computed + row)
            if found is None or positions is None:
                continue
            chosen = positions[i] >= 0  # in ascending order, in every implementation
            found.layers[layer] = positions[i][chosen]
            found.scores.pop(layer, None)  # an experiment's report comes second, and counts
            if scores is not None:
                found.scores[layer] = scores[i][chosen]
            if mass is not None:
                found.mass[layer] = mass[i]


class AnswerScoreJob(ScoreJob):
    """`score_answer` for the engine's thread."""

    def __init__(
        self,
        request: Request,
        answer: Sequence[int],
        top: int,
        deadline: float,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(request, top, deadline, clock)
        self._answer, self._progress = answer, progress

    def work(self, engine: Engine) -> AnswerScores:
        return score_answer(engine, self._request, self._answer, self._top, self.is_over, self._progress)
