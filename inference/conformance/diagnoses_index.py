"""Hypotheses about the lightning indexer (keys, queries, weights, scores) and about the selection from its scores."""

from collections.abc import Callable

import torch

from .diagnosis import (
    Case,
    Hypothesis,
    Layout,
    NotApplicable,
    Prediction,
    causal,
    fitted,
    frequencies,
    hadamard,
    layer_normed,
    linear_map,
    membership,
    rms_normed,
    rotate,
    scaled,
    top_sets,
)

KEY_EPS = 1e-6


def unrotated(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the right inputs of RoPE, index queries [T, H_i, D] or normed index keys [T, D], and the frequencies."""
    inverse = frequencies(case.config)
    if case.name == "index_query":
        return case.right("index_query_proj"), inverse
    key = case.right("index_key")
    width = 2 * len(inverse)
    plain = rotate(key[..., :width], torch.arange(len(key)), inverse, "half", backwards=True)
    return torch.cat((plain, key[..., width:]), -1), inverse


def turned(layout: Layout, last: bool = False, yarn: bool = True) -> Callable[[Case], Prediction]:
    """RoPE in a layout, on the first or the last dims."""

    def predict(case: Case) -> Prediction:
        (x, _), inverse = unrotated(case), frequencies(case.config, yarn)
        width = 2 * len(inverse)
        first = x.shape[-1] - width if last else 0
        inside = rotate(x[..., first : first + width], torch.arange(len(x)), inverse, layout)
        return torch.cat((x[..., :first], inside, x[..., first + width :]), -1)[case.rows]

    return predict


def key_norm(
    variant: Callable[[Case, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Case], Prediction]:
    """variant(case, wk's output, weight, bias) -> normed keys, of which RoPE is predicted. Weight and bias are fitted to a."""

    def predict(case: Case) -> Prediction:
        (normed, inverse), x = unrotated(case), case.right("index_key_proj")
        made = variant(case, x, *fitted(layer_normed(x, KEY_EPS), normed, bias=True))
        width = 2 * len(inverse)
        inside = rotate(made[..., :width], torch.arange(len(made)), inverse, "half")
        return torch.cat((inside, made[..., width:]), -1)[case.rows]

    return predict


def other_eps(case: Case, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    eps = case.number("rms_norm_eps", KEY_EPS)
    return layer_normed(x, 1e-5 if eps == KEY_EPS else eps) * weight + bias


def dropped_scales(case: Case) -> Prediction:
    """wk with each block of 128 columns times a constant, which is fitted to b."""
    x = case.right("attention_norm")
    weight = linear_map(x, case.right("index_key_proj"))
    parts = [x[case.rows, first : first + 128] @ weight[first : first + 128] for first in range(0, x.shape[1], 128)]
    columns = torch.stack([part.flatten() for part in parts], 1).double()
    target = case.target.float().flatten().double()
    finite = target.isfinite() & columns.isfinite().all(1)
    constants = torch.linalg.lstsq(columns[finite], target[finite, None]).solution
    return (columns @ constants).float().view(case.base.shape)


def far_off(case: Case) -> Prediction:
    """Match rows whose length is wrong by about the same large factor, where a trace is too short to fit the map."""
    try:
        x = case.right("attention_norm")
        short = len(x) < x.shape[1]
    except NotApplicable:
        short = True
    ratios = case.target.float().norm(dim=1) / case.base.float().norm(dim=1).clamp_min(1e-30)
    middle = float(ratios.median())
    steady = bool((ratios / max(middle, 1e-30) - 1).abs().median() < 0.3)
    return case.target.float() if short and steady and not 0.25 < middle < 4 else None


def scored(
    formula: Callable[[Case, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Case], Prediction]:
    """formula(case, products of queries and keys [R, H_i, S], weights [R, H_i]) -> scores [R, S], all of them b's own."""

    def predict(case: Case) -> Prediction:
        keys = case.own_whole("index_key").nan_to_num(0.0)
        products = torch.einsum("thd,sd->ths", case.own("index_query"), keys)
        return causal(formula(case, products, case.own("index_weights")), case.rows)

    return predict


def of_the_chunk(case: Case) -> Prediction:
    """Scores of the last n positions up to the query, in columns from 0: n is read off b."""
    own = case.right("index_scores")[case.rows]
    counts = case.target.isfinite().sum(1)
    columns = torch.arange(own.shape[1]) + (case.rows + 1 - counts).clamp_min(0)[:, None]
    moved = own.gather(1, columns.clamp_max(own.shape[1] - 1))
    return moved.masked_fill(torch.arange(own.shape[1]) >= counts[:, None], -torch.inf)


def stale(computed: bool, selecting: bool) -> Callable[[Case], Prediction]:
    """Keys not written with their latents, which are right: of tokens that b did (not) compute, and did (not) select for."""

    def predict(case: Case) -> Prediction:
        latent, reference = case.wrong("latent"), case.right("latent")
        if bool(case.differing.all()):
            return None
        close = (latent - reference)[case.rows].norm(dim=1) <= 0.1 * reference[case.rows].norm(dim=1)
        ran, chose = (
            case.computed(name)[case.rows].double().mean() > 0.5 for name in ("index_key_proj", "index_query")
        )
        fits = bool(close.all()) and bool(ran) == computed and (not computed or bool(chose) == selecting)
        return case.target.float() if fits else None

    return predict


ROPE = ("index_key", "index_query")
INDEX = (
    Hypothesis("index-rope-interleaved", ROPE, "RoPE with the pairs (2i, 2i + 1) in place of (i, i + rope/2)",
               turned("interleaved")),
    Hypothesis("index-rope-dims-last", ROPE, "RoPE on the last dims of the head in place of the first",
               turned("half", last=True)),
    Hypothesis("index-rope-dims-last-interleaved", ROPE, "MLA's RoPE (interleaved, on the last dims) in the indexer",
               turned("interleaved", last=True)),
    Hypothesis("index-rope-missing", ROPE, "no RoPE at all", lambda case: unrotated(case)[0][case.rows]),
    Hypothesis("index-yarn-missing", ROPE, "RoPE with plain frequencies in place of YaRN's", turned("half", yarn=False)),
    Hypothesis("hadamard-on-one-side", ROPE, "the Hadamard transform applied to this side of the product only, or not undone "
               "in this dump", lambda case: hadamard(case.base.float())),
    Hypothesis("key-norm-bias-missing", ("index_key",), "the LayerNorm of index keys without its bias",
               key_norm(lambda case, x, weight, bias: layer_normed(x, KEY_EPS) * weight)),
    Hypothesis("key-norm-rms", ("index_key",), "an RMSNorm of index keys in place of a LayerNorm",
               key_norm(lambda case, x, weight, bias: rms_normed(x, KEY_EPS) * weight)),
    Hypothesis("key-norm-missing", ("index_key",), "index keys without their LayerNorm",
               key_norm(lambda case, x, weight, bias: x)),
    Hypothesis("key-norm-eps", ("index_key",), "the LayerNorm of index keys with rms_norm_eps in place of 1e-6",
               key_norm(other_eps)),
    Hypothesis("latents-reused-without-index-keys", ("index_key",), "reused entries (a prefix, or restored ones) whose latents are "
               "right and whose index keys are not theirs", stale(False, False), weak=True),
    Hypothesis("index-keys-not-cached-while-dense", ("index_key",), "latents cached without index keys in steps that need no "
               "selection yet", stale(True, False), weak=True),
    Hypothesis("index-keys-stale-after-preemption", ("index_key",), "index keys that were not written again with their latents, "
               "such as after a preemption", stale(True, True), weak=True),
    Hypothesis("index-key-weight-scales-dropped", ("index_key_proj",), "indexer.wk with other block scales than its "
               "weight_scale_inv", dropped_scales),
    Hypothesis("index-key-weight-scales-dropped", ("index_key_proj",), "an output of indexer.wk many times too large or small, as "
               "without its weight_scale_inv", far_off, weak=True),
    Hypothesis("index-weights-constant", ("index_weights",), "head weights times a constant: H_i^-0.5 or index_dim^-0.5 is "
               "missing or applied twice (which changes no selection)", scaled(1e-3)),
    Hypothesis("relu-missing", ("index_scores",), "index scores without ReLU",
               scored(lambda case, qk, w: torch.einsum("ths,th->ts", qk, w))),
    Hypothesis("relu-after-the-sum", ("index_scores",), "ReLU of the weighted sum in place of each head's product",
               scored(lambda case, qk, w: torch.einsum("ths,th->ts", qk, w).relu())),
    Hypothesis("softmax-in-place-of-relu", ("index_scores",), "a softmax over the keys in place of ReLU",
               scored(lambda case, qk, w: torch.einsum("ths,th->ts", causal(qk, case.rows[:, None]).softmax(-1), w))),
    Hypothesis("index-weights-missing", ("index_scores",), "index scores without the heads' weights",
               scored(lambda case, qk, w: qk.relu().sum(1))),
    Hypothesis("index-weights-without-query-scale", ("index_scores",), "head weights that the FP8 scales of the index queries "
               "were not multiplied into",
               scored(lambda case, qk, w: torch.einsum("ths,th->ts", qk.relu(), w / case.own("index_query_scales")))),
    Hypothesis("index-keys-of-the-chunk-only", ("index_scores",), "scores of the current chunk's own keys only: earlier "
               "chunks are not seen", of_the_chunk),
    Hypothesis("index-scores-constant", ("index_scores",), "index scores times a constant (which changes no selection)",
               scaled(1e-3)),
)  # fmt: skip


PAGE = 64


def count_of(case: Case) -> int:
    return int((case.base >= 0).sum(1).max())


def best(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Case], Prediction]:
    """The top-k of change(scores [R, S], positions [R])."""
    return lambda case: top_sets(change(case.own("index_scores"), case.rows), count_of(case))


def everything(case: Case) -> Prediction:
    width = int(case.rows.max()) + 1
    return top_sets(causal(torch.zeros(len(case.rows), width), case.rows), width)


def window(case: Case) -> Prediction:
    newest = torch.arange(int(case.rows.max()) + 1).float().expand(len(case.rows), -1)
    return top_sets(causal(newest, case.rows), count_of(case))


def future(case: Case) -> Prediction:
    """b's own sets, if most of them have positions after their query's."""
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
    scores = case.own("index_scores")
    always = membership(case.target, scores.shape[1]).all(0).long()
    first = int(always.cumprod(0).sum())
    if not 0 < first <= count_of(case) // 2:
        return None
    scores[:, :first] = torch.where(scores[:, :first].isneginf(), -torch.inf, torch.inf)
    return top_sets(scores, count_of(case))


def fewer(case: Case) -> Prediction:
    """The top-k of another k: as many as b selects at most."""
    count = int((case.target >= 0).sum(1).max())
    return None if count == count_of(case) else top_sets(case.own("index_scores"), count)


STAGE = ("selection",)
SELECTION = (
    Hypothesis("dense-attention", STAGE, "every position up to the query's: sparse attention is off", everything),
    Hypothesis("window-attention", STAGE, "the newest positions: a window in place of the indexer's choice", window),
    Hypothesis("topk-over-wrong-length", STAGE, "the top-k of a context without the query's own token",
               best(lambda scores, positions: causal(scores, positions.clamp_min(1) - 1))),
    Hypothesis("selection-of-the-future", STAGE, "positions after the query's: the top-k is not causal", future, weak=True),
    Hypothesis("selection-off-by-a-page", STAGE, "the right positions moved by a page or a token", moved),
    Hypothesis("sinks-always-selected", STAGE, "the first positions are always selected, whatever their scores", sinks),
    Hypothesis("another-topk", STAGE, "another number of positions than index_topk", fewer),
    Hypothesis("selection-of-the-layer-before", STAGE, "the selection of the layer before",
               lambda case: case.right("selection", -1)[case.rows] if case.layer else None),
    Hypothesis("lowest-scores-selected", STAGE, "the positions with the lowest scores",
               best(lambda scores, positions: torch.where(scores.isneginf(), scores, -scores))),
)  # fmt: skip
