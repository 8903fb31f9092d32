"""Hypotheses about multi-head latent attention (norms, RoPE, FP8 latents, attention itself), routing, experts and the MTP layer."""

from collections.abc import Callable

import torch

from .diagnosis import (
    Case,
    Hypothesis,
    Layout,
    Prediction,
    attend,
    deinterleaved,
    factor_of,
    fitted,
    frequencies,
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

LATENT_EPS = 1e-6


def normed_input(case: Case) -> tuple[torch.Tensor, float]:
    """Return the input [T, D] of this stage's norm, and the norm's epsilon."""
    if case.name == "compressed_query":
        return case.right("q_a_proj"), LATENT_EPS
    if case.name == "latent":
        return case.right("kv_a_proj")[:, : case.right("latent").shape[1]], LATENT_EPS
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
    x = rms_normed(normed_input(case)[0], LATENT_EPS)
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
        return attend(q, k, value, allowed, (nope + width) ** -0.5 * factor**power)

    return predict


NORMS = ("attention_norm", "compressed_query", "latent", "mlp_norm")
ROPE = ("query_rope", "key_rope")
HEADS = ("attention_heads",)
ATTENTION = (
    Hypothesis("latent-norm-eps", ("compressed_query", "latent"), "the norm of a compressed vector with rms_norm_eps in place "
               "of 1e-6", normed_with(lambda case: case.number("rms_norm_eps"))),
    Hypothesis("norm-eps-default", ("attention_norm", "mlp_norm"), "an RMSNorm with 1e-6 in place of rms_norm_eps",
               normed_with(lambda case: LATENT_EPS)),
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
               "if query_rope and key_rope share it", lambda case: deinterleaved(case.base.float())),
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


def unknown_map(case: Case) -> Prediction:
    embedding = case.right("mtp_embedding_norm")
    return case.target.float() if len(embedding) < 2 * embedding.shape[1] else None


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
               "(a trace of twice as many tokens as hidden dims tells)", unknown_map, weak=True),
)  # fmt: skip
