"""A known answer, computed once more under a SelectionPolicy: how probable each of its tokens is, and what was read for it."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import torch

from ....model.metadata import RecordedDecodes, Selection
from ...completion import TokenLogprob
from ...params import Request
from ...token_selection import TokenSelection
from ..engine import Engine
from .scoring import ScoreJob, check_finite, prompt_logits, raise_mismatch, token_logprobs

Progress = Callable[[int, int], None]


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
