"""Hypotheses about the selection: right scores, and other positions."""

from collections.abc import Callable

import torch

from .diagnoses_case import Case, Hypothesis
from .diagnoses_formulas import causal, membership, top_sets

Prediction = torch.Tensor | None
PAGE = 64


def scores_of(case: Case) -> Prediction:
    """What b selected from, at the rows: its own scores, [R, S]."""
    return case.at(case.own("index_scores"))


def count_of(case: Case) -> int:
    return int((case.base >= 0).sum(1).max())


def best(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Case], Prediction]:
    """The top-k of change(scores [R, S], positions [R])."""

    def predict(case: Case) -> Prediction:
        scores = scores_of(case)
        return None if scores is None else top_sets(change(scores.clone(), case.rows), count_of(case))

    return predict


def everything(case: Case) -> Prediction:
    width = int(case.rows.max()) + 1
    return top_sets(causal(torch.zeros(len(case.rows), width), case.rows), width)


def window(case: Case) -> Prediction:
    newest = torch.arange(int(case.rows.max()) + 1).float().expand(len(case.rows), -1)
    return top_sets(causal(newest, case.rows), count_of(case))


def without_newest(scores: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(scores.shape[1]) >= positions[:, None].clamp_min(1), -torch.inf, scores)


def future(case: Case) -> Prediction:
    """b's own sets, if most have positions behind their query's."""
    later = (case.target > case.rows[:, None]).any(1)
    return case.target if later.double().mean() > 0.5 else None


def moved(case: Case) -> Prediction:
    """a's positions moved by a page (or a token), as far as they stay in the context."""
    best_share, found = 0.0, None
    last = int(max(case.target.max(), case.base.max()))
    target = membership(case.target, last + 1)
    for step in (-PAGE, PAGE, -1, 1):
        there = case.base + step
        stays = (there < 0) | (there > last)
        shifted = torch.where(case.base < 0, -1, torch.where(stays, case.base, there))
        share = float((membership(shifted, last + 1) == target).all(1).double().mean())
        if share > best_share:
            best_share, found = share, case.target if share > 0.9 else None
    return found


def sinks(case: Case) -> Prediction:
    """The top-k, of which the first n positions are always a part: n is the largest for which that is so in b."""
    scores = scores_of(case)
    if scores is None:
        return None
    always = membership(case.target, scores.shape[1]).all(0).long()
    first = int(always.cumprod(0).sum())
    if not 0 < first <= count_of(case) // 2:
        return None
    scores = scores.clone()
    scores[:, :first] = torch.where(scores[:, :first].isneginf(), -torch.inf, torch.inf)
    return top_sets(scores, count_of(case))


def fewer(case: Case) -> Prediction:
    """The top-k of another k: as many as b selects at most."""
    scores, count = scores_of(case), int((case.target >= 0).sum(1).max())
    return None if scores is None or count == count_of(case) else top_sets(scores, count)


def layer_before(case: Case) -> Prediction:
    return case.at(case.right("selection", -1)) if case.layer else None


STAGE = ("selection",)
HYPOTHESES = (
    Hypothesis("dense-attention", STAGE, "every position up to the query's: sparse attention is off", everything),
    Hypothesis("window-attention", STAGE, "the newest positions: a window in place of the indexer's choice", window),
    Hypothesis("topk-over-wrong-length", STAGE, "the top-k of a context without the query's own token", best(without_newest)),
    Hypothesis("selection-of-the-future", STAGE, "positions behind the query's: the top-k is not causal", future, weak=True),
    Hypothesis("selection-off-by-a-page", STAGE, "the right positions moved by a page or a token", moved),
    Hypothesis("sinks-always-selected", STAGE, "the first positions are always selected, whatever their scores", sinks),
    Hypothesis("another-topk", STAGE, "another number of positions than index_topk", fewer),
    Hypothesis("selection-of-the-layer-before", STAGE, "the selection of the layer before", layer_before),
    Hypothesis("lowest-scores-selected", STAGE, "the positions with the lowest scores",
               best(lambda scores, positions: torch.where(scores.isneginf(), scores, -scores))),
)  # fmt: skip
