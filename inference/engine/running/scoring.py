"""Logits and log-probabilities of given texts (teacher forcing), for evaluations by likelihood and for `echo` with `logprobs`."""

import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

import torch

from ....kernels.errors import ArgumentError
from ...completion import TokenLogprob
from ...token_selection import TokenSelection
from ..engine import Engine
from ..fault import log_fault
from ..request import Request
from ..scheduling.batch import Batch
from ..step import Step

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
# Takes logits fp32 [n, V] of the step's next rows, and the token of the text that follows each of them: 0 after its last one.
Take = Callable[[torch.Tensor, Sequence[int]], None]


@dataclass(eq=False)
class Text:
    """A text whose tokens all are given, on its way through `prompt_steps`."""

    request: Request
    count: int  # its first tokens, which are computed; at least 1
    first: int = 0  # tokens before this one get no logits
    reuse: bool = False  # with pages that the pool has for tokens before `first`
    # Of the tokens after those with logits, from `score_steps`.
    scores: list[TokenLogprob] = field(default_factory=list)
    error: Exception | None = None  # why the scores are wrong or incomplete

    @property
    def remaining(self) -> int:
        return self.count - self.request.cache.computed


def prompt_steps(
    engine: Engine,
    texts: Iterable[Text],
    chunk: int,
    take: Take = lambda logits, following: None,
    draft_tokens: int | None = None,
) -> Generator[tuple[Step, list[Text]]]:
    """Run texts with `chunk` tokens a step: each step has as many of them, in their order, as it has room and pages for.

    Yields each step and its texts, in the order of its batch; the last of them may be incomplete. Logits after every token from
    `first` on go to `take` in parts, so that those of a long step need not fit the memory. draft_tokens: see Batch. The
    pages filled here are not kept for reuse. All steps run between two steps of the engine: running requests keep their
    place, but the latest ones are preempted if their pages are needed. The pages are free again once the iterator is
    exhausted or closed.
    """
    engine.drain()
    rest, held = iter(texts), list[Text]()
    waiting = next(rest, None)
    try:
        while held or waiting is not None:
            room = chunk - sum(text.remaining for text in held)
            while waiting is not None and room > 0 and _admit(engine, waiting, held):
                held.append(waiting)
                room -= waiting.remaining
                waiting = next(rest, None)
            counts = [text.remaining for text in held]
            counts[-1] += min(room, 0)  # only the last text may be cut
            entries = sorted(zip(held, counts, strict=True), key=lambda entry: entry[1] != 1)  # the decodes come first
            yield _run(engine, entries, take, draft_tokens), [text for text, _ in entries]
            for text in [text for text in held if not text.remaining]:
                held.remove(text)
                engine.pool.release(text.request.cache.pages)
    finally:
        try:
            for text in held:
                engine.pool.release(text.request.cache.pages)
        except Exception:
            log_fault(log, "freeing the pages of a scored prompt failed")
            engine.recover()


def _admit(engine: Engine, text: Text, held: list[Text]) -> bool:
    """Take pages for a text next to the ones that are held. False if there is no place for it; the first always has one."""
    cache, pool = text.request.cache, engine.pool
    taken = sum(len(each.request.cache.pages) for each in held) + pool.pages_for(text.count)
    if held and (taken > pool.page_count or len(held) == engine.limits.max_sequences):
        return False
    try:
        if text.reuse:
            cache.pages, *_ = pool.match(text.request.tokens[: min(text.first, text.request.shareable)])
        cache.admission += 1  # for observers, which verify the pages that a request reuses
        cache.computed = len(cache.pages) * pool.page_size
        cache.pages = cache.pages + engine.scheduler.take_pages(pool.pages_for(text.count) - len(cache.pages))
    except BaseException:
        held.clear()
        engine.recover()
        raise
    return True


def _run(engine: Engine, entries: list[tuple[Text, int]], take: Take, draft_tokens: int | None) -> Step:
    """Launch a step of (text, number of new tokens) pairs. Its logits have gone to `take` when this returns."""
    requests = [text.request for text, _ in entries]
    starts, counts = [request.cache.computed for request in requests], [count for _, count in entries]
    rows: list[int] = []
    following: list[int] = []
    for (text, count), start in zip(entries, starts, strict=True):
        end = start + count
        rows.append(min(max(end - text.first, 0), count))
        following += [*text.request.tokens[end - rows[-1] + 1 : end + 1], 0][: rows[-1]]
    done, failure = 0, None

    def take_part(logits: torch.Tensor) -> None:
        nonlocal done, failure
        try:
            take(logits, following[done : done + len(logits)])
        except Exception as error:
            failure = failure or error
        done += len(logits)

    decodes = sum(count == 1 for count in counts)
    entries_of_batch = (tuple(requests), tuple(starts), tuple(counts), decodes, tuple(rows))
    step = engine.runner.run(Batch(*entries_of_batch, draft_tokens=draft_tokens, take_logits=take_part))
    if len(step.logits):  # a graph's, or a model's that does not divide them
        take_part(step.logits)
    if failure is not None:
        raise failure
    for request, start, count in zip(requests, starts, counts, strict=True):
        request.cache.computed = start + count
    return step


def all_logits(engine: Engine, token_ids: Sequence[int], chunk: int | None = None) -> torch.Tensor:
    """fp32 [T, vocab] on the CPU: the logits after every token, `chunk` tokens per step. ValueError as `RequestMaker`."""
    request = engine.requests.from_tokens(token_ids, min_new_tokens=0)
    chunk = engine.limits.rank_tokens if chunk is None else chunk
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; expected at least 1")
    found = torch.empty(len(request.tokens), engine.config.vocab_size)
    rest = found

    def take(logits: torch.Tensor, following: Sequence[int]) -> None:
        nonlocal rest
        rest[: len(logits)] = logits
        rest = rest[len(logits) :]

    with closing(prompt_steps(engine, [Text(request, len(request.tokens))], chunk, take)) as steps:
        for _ in steps:
            raise_observed(engine, request)
    return found


def raise_observed(engine: Engine, request: Request) -> None:
    """Raise RuntimeError if an observer has found a fault in the request's latest chunk, whose logits have arrived."""
    error = engine.end_observed().get(request.id)
    if error is not None:
        raise RuntimeError(error)


def score_steps(engine: Engine, texts: Iterable[Text], top: int) -> Generator[tuple[Step, list[Text]]]:
    """`prompt_steps` of `rank_tokens` tokens that add to each text's `scores`, or set its `error`.

    FloatingPointError: the logits are not finite. RuntimeError: an observer has found a fault.
    """
    found: list[TokenLogprob] = []

    def take(logits: torch.Tensor, following: Sequence[int]) -> None:
        found.extend(token_logprobs(logits, following, top))

    with closing(prompt_steps(engine, texts, engine.limits.rank_tokens, take)) as steps:
        for step, in_step in steps:
            observed = engine.end_observed()
            for text, rows in zip(in_step, step.batch.logit_counts, strict=True):
                own, found[:] = found[:rows], found[rows:]
                text.scores += own
                if any(math.isnan(each.logprob) for each in own):
                    text.error = FloatingPointError("the model's logits for the prompt are not finite numbers")
                if text.request.id in observed:
                    text.error = RuntimeError(observed[text.request.id])
            yield step, in_step


def score(
    engine: Engine, request: Request, top: int, is_over: Callable[[], bool] = lambda: False
) -> list[TokenLogprob]:
    """log p(token | tokens before it) for every token of the prompt but the first, with the `top` likeliest tokens at its place.

    TimeoutError if `is_over` says so before a step; other errors as `score_steps` sets them.
    """
    text = Text(request, len(request.tokens) - 1)
    with closing(score_steps(engine, [text], top)) as steps:
        while text.remaining:
            if is_over():
                raise TimeoutError("the request's time is over")
            next(steps)
            if text.error is not None:
                raise text.error
    return text.scores


def score_texts(engine: Engine, texts: Iterable[Text], top: int = 0) -> Iterator[Text]:
    """Score texts, as many in each step as fit, and yield each at its end, with its scores or its `error`.

    A step that fails ends only the texts that have begun.
    """
    rest = iter(texts)
    while True:
        pulled: list[Text] = []
        try:
            with closing(score_steps(engine, _noted(rest, pulled), top)) as steps:
                for _, in_step in steps:
                    for text in sorted(in_step, key=lambda text: text.request.id):
                        if text.remaining:
                            continue
                        pulled.remove(text)
                        yield text
            return
        except Exception as error:
            begun = [text for text in pulled if text.request.cache.admission]
            if not begun:
                raise
            log_fault(log, "scoring %d texts failed", len(begun))
            for text in begun:
                text.error = error
                yield text
            rest = chain([text for text in pulled if text not in begun], rest)


def _noted(texts: Iterable[Text], pulled: list[Text]) -> Iterator[Text]:
    for text in texts:
        pulled.append(text)
        yield text


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
    count: int,
    top: int = 0,
    is_over: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, of: None,
) -> AnswerScores:
    """log p(token | tokens before it) of the prompt's last `count` tokens, the answer, with the `top` likeliest at their place.

    Pages are reused for the tokens before the answer's first query, as far as the request's policy allows. progress: called with
    the tokens done and all tokens. TimeoutError if `is_over` says so after a step; ValueError for an empty prompt; other errors as
    `score_steps` sets them.
    """
    if count >= len(request.tokens):
        raise ArgumentError("prompt", "empty", "at least 1 token")
    text = Text(request, len(request.tokens) - 1, len(request.tokens) - 1 - count, reuse=True)
    scores = AnswerScores(text.scores)
    request.inspect = math.inf
    with closing(score_steps(engine, [text], top)) as steps:
        for step, _ in steps:
            if text.error is not None:
                raise text.error
            for offset in range(step.batch.logit_counts[0]):
                assert step.selections is not None
                selection = step.selections.of(request, offset)
                assert selection is not None
                scores.selections.append(selection)
            progress(request.cache.computed, text.count)
            if is_over():
                raise TimeoutError("the request's time is over")
    return scores
