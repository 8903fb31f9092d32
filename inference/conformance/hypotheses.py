"""Hypotheses: about the lightning indexer and the selection; then about attention, routing, experts and the MTP layer."""

from collections.abc import Callable

import torch

from .diagnosis import (
    Case,
    Hypothesis,
    Layout,
    NotApplicable,
    Prediction,
    causal,
    factor_of,
    fitted,
    frequencies,
    hadamard,
    layer_normed,
    linear_map,
    membership,
    mscale,
    plain_scales,
    quantised,
    rms_normed,
    rotate,
    scaled,
    top_sets,
)

EPS = 1e-6  # of the norms of index keys and of compressed vectors


def unrotated(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the right inputs of RoPE, index queries [T, H_i, D] or normed index keys [T, D], and the frequencies."""
    inverse = frequencies(case.config)
    if case.name == "index_query":
        return case.right("index_query_proj"), inverse
    key = case.right("index_key")
    return rotate(key, torch.arange(len(key)), inverse, "half", backwards=True), inverse


def turned_index(layout: Layout, last: bool = False, yarn: bool = True) -> Callable[[Case], Prediction]:
    """RoPE in a layout, on the first or the last dims."""

    def predict(case: Case) -> Prediction:
        (x, _), inverse = unrotated(case), frequencies(case.config, yarn)
        first = x.shape[-1] - 2 * len(inverse) if last else 0
        rest = rotate(x[..., first:], torch.arange(len(x)), inverse, layout)
        return torch.cat((x[..., :first], rest), -1)[case.rows]

    return predict


def key_norm(
    variant: Callable[[Case, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Case], Prediction]:
    """variant(case, wk's output, weight, bias) -> normed keys, of which RoPE is predicted. Weight and bias are fitted to a."""

    def predict(case: Case) -> Prediction:
        (normed, inverse), x = unrotated(case), case.right("index_key_proj")
        made = variant(case, x, *fitted(layer_normed(x, EPS), normed, bias=True))
        return rotate(made, torch.arange(len(made)), inverse, "half")[case.rows]

    return predict


def other_eps(case: Case, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    eps = case.number("rms_norm_eps", EPS)
    return layer_normed(x, 1e-5 if eps == EPS else eps) * weight + bias


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


TURNED = ("index_key", "index_query")
INDEX = (
    Hypothesis("index-rope-interleaved", TURNED, "RoPE with the pairs (2i, 2i + 1) in place of (i, i + rope/2)",
               turned_index("interleaved")),
    Hypothesis("index-rope-dims-last", TURNED, "RoPE on the last dims of the head in place of the first",
               turned_index("half", last=True)),
    Hypothesis("index-rope-dims-last-interleaved", TURNED, "MLA's RoPE (interleaved, on the last dims) in the indexer",
               turned_index("interleaved", last=True)),
    Hypothesis("index-rope-missing", TURNED, "no RoPE at all", lambda case: unrotated(case)[0][case.rows]),
    Hypothesis("index-yarn-missing", TURNED, "RoPE with plain frequencies in place of YaRN's", turned_index("half", yarn=False)),
    Hypothesis("hadamard-on-one-side", TURNED, "the Hadamard transform applied to this side of the product only, or not undone "
               "in this dump", lambda case: hadamard(case.base.float())),
    Hypothesis("key-norm-bias-missing", ("index_key",), "the LayerNorm of index keys without its bias",
               key_norm(lambda case, x, weight, bias: layer_normed(x, EPS) * weight)),
    Hypothesis("key-norm-rms", ("index_key",), "an RMSNorm of index keys in place of a LayerNorm",
               key_norm(lambda case, x, weight, bias: rms_normed(x, EPS) * weight)),
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


def count_of(case: Case) -> int:
    return int((case.base >= 0).sum(1).max())


def best(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Case], Prediction]:
    """The top-k of change(scores [R, S], positions [R])."""
    return lambda case: top_sets(change(case.own("index_scores"), case.rows), count_of(case))


def window(case: Case, whole: bool = False) -> Prediction:
    """The newest positions, as many as a selects, or all."""
    newest = torch.arange(int(case.rows.max()) + 1).float().expand(len(case.rows), -1)
    return top_sets(causal(newest, case.rows), newest.shape[1] if whole else count_of(case))


def future(case: Case) -> Prediction:
    """b's own sets, if most of them have positions after their query's."""
    later = (case.target > case.rows[:, None]).any(1)
    return case.target if later.double().mean() > 0.5 else None


def moved(case: Case) -> Prediction:
    """a's positions moved by a page (or a token), as far as they stay in the context."""
    best_share, found = 0.0, None
    last = int(max(case.target.max(), case.base.max()))
    target = membership(case.target, last + 1)
    for step in (-64, 64, -1, 1):
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


CHOSEN = ("selection",)
SELECTION = (
    Hypothesis("dense-attention", CHOSEN, "every position up to the query's: sparse attention is off",
               lambda case: window(case, whole=True)),
    Hypothesis("window-attention", CHOSEN, "the newest positions: a window in place of the indexer's choice", window),
    Hypothesis("topk-over-wrong-length", CHOSEN, "the top-k of a context without the query's own token",
               best(lambda scores, positions: causal(scores, positions.clamp_min(1) - 1))),
    Hypothesis("selection-of-the-future", CHOSEN, "positions after the query's: the top-k is not causal", future, weak=True),
    Hypothesis("selection-off-by-a-page", CHOSEN, "the right positions moved by a page or a token", moved),
    Hypothesis("sinks-always-selected", CHOSEN, "the first positions are always selected, whatever their scores", sinks),
    Hypothesis("another-topk", CHOSEN, "another number of positions than index_topk", fewer),
    Hypothesis("selection-of-the-layer-before", CHOSEN, "the selection of the layer before",
               lambda case: case.right("selection", -1)[case.rows] if case.layer else None),
    Hypothesis("lowest-scores-selected", CHOSEN, "the positions with the lowest scores",
               best(lambda scores, positions: torch.where(scores.isneginf(), scores, -scores))),
)  # fmt: skip


def normed_input(case: Case) -> tuple[torch.Tensor, float]:
    """Return the input [T, D] of this stage's norm, and the norm's epsilon."""
    if case.name == "compressed_query":
        return case.right("q_a_proj"), EPS
    if case.name == "latent":
        return case.right("kv_a_proj")[:, : case.right("latent").shape[1]], EPS
    eps = case.number("rms_norm_eps")
    if case.name == "mlp_norm":
        return case.right("attention_residual"), eps
    return case.right("residual", -1) if case.layer else case.right("embedding"), eps


def normed_with(eps_of: Callable[[Case], float | None]) -> Callable[[Case], Prediction]:
    """The norm with another epsilon; its weight is fitted to a."""

    def predict(case: Case) -> Prediction:
        (x, eps), other = normed_input(case), eps_of(case)
        if other is None or other == eps:
            return None
        weight, _ = fitted(rms_normed(x, eps), case.a.stages[case.full].float())
        return (rms_normed(x, other) * weight)[case.rows]

    return predict


def exact_latent(case: Case) -> torch.Tensor:
    """The latents before their quantisation, at the rows; the norm's weight is fitted."""
    x = rms_normed(normed_input(case)[0], EPS)
    weight, _ = fitted(x, case.a.stages[case.full].float())
    return (x * weight)[case.rows]


def rounded_down(case: Case) -> Prediction:
    latent = exact_latent(case)
    return quantised(latent, torch.exp2(torch.floor(torch.log2(plain_scales(latent)))))


def rounded_late(case: Case) -> Prediction:
    latent = exact_latent(case)
    scales = plain_scales(latent)
    return quantised(latent, scales, torch.exp2(torch.ceil(torch.log2(scales))))


def one_scale(case: Case) -> Prediction:
    """All groups of 128 with one scale, which b's records hold."""
    latent, record = exact_latent(case), case.wrong("latent_record")[case.rows]
    width = latent.shape[1]
    if width % 128 or record.shape[1] < width + width // 32:
        return None
    scales = record[:, width : width + width // 32].contiguous().view(torch.float32)
    first = scales.flatten()[0]
    return quantised(latent, scales) if bool((scales == first).all()) else None


def rope_input(case: Case) -> torch.Tensor:
    return case.right("query" if case.name == "query_rope" else "kv_a_proj")[..., -case.base.shape[-1] :]


def turned(layout: Layout, yarn: bool = True, shift: int = 0) -> Callable[[Case], Prediction]:
    def predict(case: Case) -> Prediction:
        x = rope_input(case)
        return rotate(x, torch.arange(len(x)) + shift, frequencies(case.config, yarn), layout)[case.rows]

    return predict


def attended(power: int = 2, dense: bool = False, rope: bool = True) -> Callable[[Case], Prediction]:
    """Attention with the scale d^-0.5 * mscale^power, over b's selection or everything, with or without the rotated part."""

    def predict(case: Case) -> Prediction:
        factor = mscale(case.config)
        if power != 2 and factor == 1.0:
            return None
        query, rotated = case.own("query"), case.own("query_rope")
        keys, value, key_rope = map(case.own_whole, ("key_nope", "value", "key_rope"))
        nope, width = keys.shape[-1], rotated.shape[-1]
        count = len(keys)
        allowed = torch.arange(count) <= case.rows[:, None] if dense else membership(case.own("selection"), count)
        q = torch.cat((query[..., :nope], rotated * rope), -1)
        k = torch.cat((keys, key_rope[:, None].expand(-1, keys.shape[1], -1)), -1).nan_to_num(0.0)
        logits = torch.einsum("thd,shd->ths", q, k) * ((nope + width) ** -0.5 * factor**power)
        weights = logits.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
        return torch.einsum("ths,shv->thv", weights.nan_to_num(0.0), value.nan_to_num(0.0))

    return predict


NORMS = ("attention_norm", "compressed_query", "latent", "mlp_norm")
ROPE = ("query_rope", "key_rope")
HEADS = ("attention_heads",)
ATTENTION = (
    Hypothesis("latent-norm-eps", ("compressed_query", "latent"), "the norm of a compressed vector with rms_norm_eps in place "
               "of 1e-6", normed_with(lambda case: case.number("rms_norm_eps"))),
    Hypothesis("norm-eps-default", ("attention_norm", "mlp_norm"), "an RMSNorm with 1e-6 in place of rms_norm_eps",
               normed_with(lambda case: EPS)),
    Hypothesis("norm-eps-1e-5", NORMS, "an RMSNorm with the epsilon 1e-5",
               normed_with(lambda case: None if case.number("rms_norm_eps", 0.0) == 1e-5 else 1e-5)),
    Hypothesis("norm-missing", NORMS, "the value before its RMSNorm", lambda case: normed_input(case)[0][case.rows]),
    Hypothesis("latent-scale-rounded-down", ("latent",), "cache entries whose UE8M0 scale is rounded down: the largest values "
               "are cut off", rounded_down),
    Hypothesis("latent-scale-rounded-late", ("latent",), "cache entries divided by the unrounded scale and stored with the "
               "rounded one", rounded_late),
    Hypothesis("latent-scale-per-tensor", ("latent",), "one scale for all cache entries in place of one for each 128 dims",
               one_scale),
    Hypothesis("mla-rope-half-split", ROPE, "RoPE with the pairs (i, i + rope/2) in place of (2i, 2i + 1)", turned("half")),
    Hypothesis("rope-dims-moved", ROPE, "the right values with the pairs (2i, 2i + 1) moved to (i, i + rope/2): a convention, "
               "if query_rope and key_rope share it",
               lambda case: torch.cat((case.base[..., 0::2], case.base[..., 1::2]), -1).float()),
    Hypothesis("yarn-missing", ROPE, "RoPE with plain frequencies in place of YaRN's", turned("interleaved", yarn=False)),
    Hypothesis("mla-rope-missing", ROPE, "no RoPE at all", lambda case: rope_input(case)[case.rows]),
    Hypothesis("rope-position-off-by-one", ROPE, "RoPE at the next position", turned("interleaved", shift=1)),
    Hypothesis("mscale-on-rope", ROPE, "cos and sin times a constant, such as YaRN's attention factor, which the softmax scale "
               "has already", scaled(1e-2)),
    Hypothesis("mscale-missing", HEADS, "a softmax scale without YaRN's mscale^2", attended(0)),
    Hypothesis("mscale-once", HEADS, "a softmax scale with mscale in place of mscale^2", attended(1)),
    Hypothesis("mscale-twice", HEADS, "a softmax scale with mscale^2 applied twice", attended(4)),
    Hypothesis("selection-ignored", HEADS, "attention over the whole context: the selection is computed and not used",
               attended(dense=True)),
    Hypothesis("attention-without-rope", HEADS, "attention without the rotated part of queries and keys",
               attended(rope=False)),
)  # fmt: skip


def routing(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Sigmoid scores [R, E] and correction bias [E]; the bias is what a's stages differ by."""
    bias = (case.right("router_scores") - case.right("router_logits").sigmoid()).nanmedian(0).values
    return case.own("router_logits").sigmoid(), bias


def chosen(case: Case, scores: torch.Tensor, group_size: int | None) -> Prediction:
    """The experts with the largest scores [R, E], of the groups with the largest sums of their `group_size` best (None: of all)."""
    groups, kept, count = (case.number(key) for key in ("n_group", "topk_group", "num_experts_per_tok"))
    if group_size is not None and groups > 1:
        by_group = scores.unflatten(1, (int(groups), -1))
        best = by_group.topk(min(group_size, by_group.shape[2]), 2).values.sum(2).topk(int(kept)).indices
        dropped = torch.ones(by_group.shape[:2], dtype=torch.bool).scatter(1, best, False)
        scores = by_group.masked_fill(dropped[..., None], -torch.inf).flatten(1)
    return top_sets(scores, int(count))


def choosing(
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], group_size: int | None
) -> Callable[[Case], Prediction]:
    """change(sigmoid scores, bias) -> what the choice is made by."""
    return lambda case: chosen(case, change(*routing(case)), group_size)


def weighing(change: Callable[[Case, torch.Tensor, torch.Tensor], Prediction]) -> Callable[[Case], Prediction]:
    """change(case, sigmoid scores of the chosen [R, k], their bias) -> weights."""

    def predict(case: Case) -> Prediction:
        (scores, bias), ids = routing(case), case.own("router_choice").clamp_min(0).long()
        return change(case, scores.gather(1, ids), bias[ids])

    return predict


def normalised(case: Case, weights: torch.Tensor, power: int = 1) -> Prediction:
    scale = case.number("routed_scaling_factor")
    shares = weights / (weights.sum(1, keepdim=True) + 1e-20) if case.config.get("norm_topk_prob", True) else weights
    return shares * scale**power


def with_shared(factor_for: Callable[[Case, float], float | None]) -> Callable[[Case], Prediction]:
    """The experts' output with the shared expert times a factor, which is fitted to b and must be about factor_for(case, fit)."""

    def predict(case: Case) -> Prediction:
        shared = case.right("shared_expert")[case.rows]
        routed = case.base.float() - shared
        fit = factor_of(case.target.float() - routed, shared)
        expected = factor_for(case, fit)
        return None if expected is None or abs(fit - expected) > 0.1 else routed + expected * shared

    return predict


def another_constant(case: Case, fit: float) -> float | None:
    """The fit itself, unless it is about one of the factors that have a name."""
    scale = case.number("routed_scaling_factor", 1.0)
    named = (0.0, 1.0, scale, 1 / scale if scale else 0.0)
    return None if any(abs(fit - each) <= 0.1 for each in named) else fit


def before_the_norm(case: Case) -> Prediction:
    """hnorm of the last layer's residual stream; its weight is fitted to a."""
    last, eps = int(case.number("num_hidden_layers")) - 1, case.number("rms_norm_eps")
    hidden, residual = case.right("final_norm"), case.a.stages.get(f"layers.{last}.residual")
    if residual is None:
        return None
    right = case.a.stages[case.full].float()
    weight, _ = fitted(rms_normed(hidden[: len(right)], eps), right)
    return (rms_normed(residual.float()[: len(right)], eps) * weight)[case.rows]


def swapped(case: Case) -> Prediction:
    """[hidden | embedding] @ eh_proj^T; the weight is fitted to a, which takes a trace of twice as many tokens as hidden dims."""
    embedding, hidden = case.right("mtp_embedding_norm"), case.right("mtp_hidden_norm")
    weight = linear_map(torch.cat((embedding, hidden), 1), case.a.stages[case.full].float())
    return (torch.cat((hidden, embedding), 1) @ weight)[case.rows]


CHOICE, WEIGHTS, OUTPUT = ("router_choice",), ("router_weights",), ("mlp_output",)
EXPERTS = (
    Hypothesis("router-bias-ignored", CHOICE, "experts chosen without e_score_correction_bias",
               choosing(lambda scores, bias: scores, 2)),
    Hypothesis("router-groups-ignored", CHOICE, "experts chosen from all groups",
               choosing(lambda scores, bias: scores + bias, None)),
    Hypothesis("router-groups-by-maximum", CHOICE, "groups kept by their best expert in place of their two best",
               choosing(lambda scores, bias: scores + bias, 1)),
    Hypothesis("router-softmax", CHOICE, "router scores by softmax in place of sigmoid",
               lambda case: chosen(case, case.own("router_logits").softmax(-1) + routing(case)[1], 2)),
    Hypothesis("router-bias-in-weights", WEIGHTS, "expert weights that include e_score_correction_bias",
               weighing(lambda case, scores, bias: normalised(case, scores + bias))),
    Hypothesis("routed-scaling-missing", WEIGHTS, "expert weights without routed_scaling_factor",
               weighing(lambda case, scores, bias: normalised(case, scores, 0))),
    Hypothesis("routed-scaling-twice", WEIGHTS, "expert weights with routed_scaling_factor squared",
               weighing(lambda case, scores, bias: normalised(case, scores, 2))),
    Hypothesis("router-weights-not-normalised", WEIGHTS, "expert weights that are not divided by their sum",
               weighing(lambda case, scores, bias: scores * case.number("routed_scaling_factor"))),
    Hypothesis("shared-expert-missing", OUTPUT, "the routed experts without the shared one",
               with_shared(lambda case, fit: 0.0)),
    Hypothesis("shared-expert-scaled", OUTPUT, "the shared expert divided by routed_scaling_factor",
               with_shared(lambda case, fit: 1 / scale
                           if (scale := case.number("routed_scaling_factor")) not in (0.0, 1.0) else None)),
    Hypothesis("shared-expert-multiplied", OUTPUT, "the shared expert times routed_scaling_factor",
               with_shared(lambda case, fit: case.number("routed_scaling_factor"))),
    Hypothesis("shared-expert-constant", OUTPUT, "the shared expert times a constant", with_shared(another_constant)),
    Hypothesis("routed-experts-scaled", OUTPUT, "the routed experts times a constant",
               scaled(1e-2, lambda case: case.right("shared_expert")[case.rows])),
    Hypothesis("mtp-before-the-norm", ("mtp_hidden_norm",), "the hidden state before the final norm", before_the_norm),
    Hypothesis("mtp-concatenation-swapped", ("mtp_input",), "eh_proj of [hidden | embedding] in place of [embedding | hidden]",
               swapped),
    Hypothesis("mtp-input-product", ("mtp_input",), "another product of right inputs: the order of concatenation, or the weight "
               "(a trace of twice as many tokens as hidden dims tells)",
               lambda case: case.target.float() if len(x := case.right("mtp_embedding_norm")) < 2 * x.shape[1] else None,
               weak=True),
)  # fmt: skip

HYPOTHESES = (*INDEX, *SELECTION, *ATTENTION, *EXPERTS)
