"""Hypotheses about routing, experts and the multi-token-prediction layer."""

from collections.abc import Callable

import torch

from .diagnoses_case import Case, Hypothesis
from .diagnoses_formulas import factor_of, fitted, linear_map, rms_normed, top_sets

Prediction = torch.Tensor | None


def routing(case: Case) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Sigmoid scores [R, E] and correction bias [E]; the bias is what a's stages differ by."""
    logits, biased = case.at(case.own("router_logits")), case.right("router_scores")
    right = case.right("router_logits")
    if logits is None or biased is None or right is None:
        return None
    return logits.sigmoid(), (biased - right.sigmoid()).nanmedian(0).values


def chosen(case: Case, scores: torch.Tensor, group_size: int | None) -> Prediction:
    """The experts with the largest scores [R, E], of the groups with the largest sums of their `group_size` best (None: of all)."""
    groups, kept, count = (case.number(key) for key in ("n_group", "topk_group", "num_experts_per_tok"))
    if groups is None or kept is None or count is None:
        return None
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

    def predict(case: Case) -> Prediction:
        found = routing(case)
        return None if found is None else chosen(case, change(*found), group_size)

    return predict


def softmax_choice(case: Case) -> Prediction:
    logits, found = case.at(case.own("router_logits")), routing(case)
    return None if logits is None or found is None else chosen(case, logits.softmax(-1) + found[1], 2)


def weighing(change: Callable[[Case, torch.Tensor, torch.Tensor], Prediction]) -> Callable[[Case], Prediction]:
    """change(case, sigmoid scores of the chosen [R, k], their bias) -> weights."""

    def predict(case: Case) -> Prediction:
        found, experts = routing(case), case.at(case.own("router_choice"))
        if found is None or experts is None:
            return None
        ids = experts.clamp_min(0).long()
        return change(case, found[0].gather(1, ids), found[1][ids])

    return predict


def normalised(case: Case, weights: torch.Tensor, power: int = 1) -> Prediction:
    scale = case.number("routed_scaling_factor")
    if scale is None:
        return None
    shares = weights / (weights.sum(1, keepdim=True) + 1e-20) if case.config.get("norm_topk_prob", True) else weights
    return shares * scale**power


def not_normalised(case: Case, scores: torch.Tensor, bias: torch.Tensor) -> Prediction:
    scale = case.number("routed_scaling_factor")
    return None if scale is None else scores * scale


def with_shared(factor_for: Callable[[Case, float], float | None]) -> Callable[[Case], Prediction]:
    """The experts' output with the shared expert times a factor, which is fitted to b and must be about factor_for(case, fit)."""

    def predict(case: Case) -> Prediction:
        shared = case.at(case.right("shared_expert"))
        if shared is None:
            return None
        routed = case.base.float() - shared
        fit = factor_of(case.target.float() - routed, shared)
        expected = factor_for(case, fit)
        return None if expected is None or abs(fit - expected) > 0.1 else routed + expected * shared

    return predict


def inverse_scaling(case: Case, fit: float) -> float | None:
    scale = case.number("routed_scaling_factor")
    return None if scale in (None, 1.0, 0.0) else 1 / float(scale or 1)


def another_constant(case: Case, fit: float) -> float | None:
    """The fit itself, unless it is about one of the factors that have a name."""
    named = (0.0, 1.0, inverse_scaling(case, fit), case.number("routed_scaling_factor"))
    return None if any(each is not None and abs(fit - each) <= 0.1 for each in named) else fit


def routed_scaled(case: Case) -> Prediction:
    """The routed experts' part times a constant, the shared expert's as it is."""
    shared = case.at(case.right("shared_expert"))
    if shared is None:
        return None
    routed = case.base.float() - shared
    factor = factor_of(case.target.float() - shared, routed)
    return None if abs(factor - 1) < 1e-2 else shared + factor * routed


def before_the_norm(case: Case) -> Prediction:
    """hnorm of the last layer's residual stream; its weight is fitted to a."""
    layers, eps = case.number("num_hidden_layers") or 0, case.number("rms_norm_eps")
    hidden, residual = case.a.stages.get("final_norm"), case.a.stages.get(f"layers.{int(layers) - 1}.residual")
    if hidden is None or residual is None or eps is None:
        return None
    right = case.a.stages[case.full].float()
    weight, _ = fitted(rms_normed(hidden.float()[: len(right)], eps), right)
    return case.at(rms_normed(residual.float()[: len(right)], eps) * weight)


def swapped(case: Case) -> Prediction:
    """[hidden | embedding] @ eh_proj^T; the weight is fitted to a, which takes a trace of twice as many tokens as hidden dims."""
    embedding, hidden = case.right("mtp_embedding_norm"), case.right("mtp_hidden_norm")
    if embedding is None or hidden is None:
        return None
    weight = linear_map(torch.cat((embedding, hidden), 1), case.a.stages[case.full].float())
    return None if weight is None else case.at(torch.cat((hidden, embedding), 1) @ weight)


def unknown_map(case: Case) -> Prediction:
    """Inputs that agree and a product that does not, in a trace too short to tell which."""
    embedding = case.right("mtp_embedding_norm")
    return case.target.float() if embedding is not None and len(embedding) < 2 * embedding.shape[1] else None


CHOICE, WEIGHTS, OUTPUT = ("router_choice",), ("router_weights",), ("mlp_output",)
HYPOTHESES = (
    Hypothesis("router-bias-ignored", CHOICE, "experts chosen without e_score_correction_bias",
               choosing(lambda scores, bias: scores, 2)),
    Hypothesis("router-groups-ignored", CHOICE, "experts chosen from all groups",
               choosing(lambda scores, bias: scores + bias, None)),
    Hypothesis("router-groups-by-maximum", CHOICE, "groups kept by their best expert in place of their two best",
               choosing(lambda scores, bias: scores + bias, 1)),
    Hypothesis("router-softmax", CHOICE, "router scores by softmax in place of sigmoid", softmax_choice),
    Hypothesis("router-bias-in-weights", WEIGHTS, "expert weights that include e_score_correction_bias",
               weighing(lambda case, scores, bias: normalised(case, scores + bias))),
    Hypothesis("routed-scaling-missing", WEIGHTS, "expert weights without routed_scaling_factor",
               weighing(lambda case, scores, bias: normalised(case, scores, 0))),
    Hypothesis("routed-scaling-twice", WEIGHTS, "expert weights with routed_scaling_factor squared",
               weighing(lambda case, scores, bias: normalised(case, scores, 2))),
    Hypothesis("router-weights-not-normalised", WEIGHTS, "expert weights that are not divided by their sum",
               weighing(not_normalised)),
    Hypothesis("shared-expert-missing", OUTPUT, "the routed experts without the shared one",
               with_shared(lambda case, fit: 0.0)),
    Hypothesis("shared-expert-scaled", OUTPUT, "the shared expert divided by routed_scaling_factor",
               with_shared(inverse_scaling)),
    Hypothesis("shared-expert-multiplied", OUTPUT, "the shared expert times routed_scaling_factor",
               with_shared(lambda case, fit: case.number("routed_scaling_factor"))),
    Hypothesis("shared-expert-constant", OUTPUT, "the shared expert times a constant", with_shared(another_constant)),
    Hypothesis("routed-experts-scaled", OUTPUT, "the routed experts times a constant", routed_scaled),
    Hypothesis("mtp-before-the-norm", ("mtp_hidden_norm",), "the hidden state before the final norm", before_the_norm),
    Hypothesis("mtp-concatenation-swapped", ("mtp_input",), "eh_proj of [hidden | embedding] in place of [embedding | hidden]",
               swapped),
    Hypothesis("mtp-input-product", ("mtp_input",), "another product of right inputs: the order of concatenation, or the weight "
               "(a trace of twice as many tokens as hidden dims tells)", unknown_map, weak=True),
)  # fmt: skip
