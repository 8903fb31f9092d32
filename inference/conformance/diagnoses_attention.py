"""Hypotheses about multi-head latent attention: norms, RoPE, FP8 latents, and attention itself."""

from collections.abc import Callable

import torch

from .diagnoses_case import Case, Hypothesis
from .diagnoses_formulas import (
    Layout,
    attend,
    deinterleaved,
    factor_of,
    fitted,
    frequencies,
    membership,
    mscale,
    plain_scales,
    quantised,
    rms_normed,
    rotate,
)

Prediction = torch.Tensor | None
LATENT_EPS = 1e-6


def normed_input(case: Case) -> tuple[torch.Tensor, float] | None:
    """What the norm of this stage gets, [T, D], and its epsilon."""
    eps = case.number("rms_norm_eps")
    if case.name == "compressed_query":
        x, eps = case.right("q_a_proj"), LATENT_EPS
    elif case.name == "latent":
        kv, latent, eps = case.right("kv_a_proj"), case.right("latent"), LATENT_EPS
        x = None if kv is None or latent is None else kv[:, : latent.shape[1]]
    elif case.name == "attention_norm":
        x = case.before()
    elif case.name == "mlp_norm":
        x = case.right("attention_residual")
    else:
        x = None
    return None if x is None or eps is None else (x, eps)


def normed_with(eps_of: Callable[[Case], float | None]) -> Callable[[Case], Prediction]:
    """The norm with another epsilon; its weight is fitted to a."""

    def predict(case: Case) -> Prediction:
        found, other = normed_input(case), eps_of(case)
        if found is None or other is None or other == found[1]:
            return None
        x, eps = found
        weight, _ = fitted(rms_normed(x, eps), case.a.stages[case.full].float())
        return case.at(rms_normed(x, other) * weight)

    return predict


def eps_1e_5(case: Case) -> float | None:
    return None if case.number("rms_norm_eps") == 1e-5 else 1e-5  # else it has another name


def not_normed(case: Case) -> Prediction:
    found = normed_input(case)
    return None if found is None else case.at(found[0])


def exact_latent(case: Case) -> Prediction:
    """The latents before their quantisation, at the rows; the norm's weight is fitted."""
    found = normed_input(case)
    if found is None:
        return None
    x = rms_normed(found[0], LATENT_EPS)
    weight, _ = fitted(x, case.a.stages[case.full].float())
    return case.at(x * weight)


def rounded_down(case: Case) -> Prediction:
    latent = exact_latent(case)
    scales = None if latent is None else plain_scales(latent)
    return None if latent is None or scales is None else quantised(latent, torch.exp2(torch.floor(torch.log2(scales))))


def rounded_late(case: Case) -> Prediction:
    latent = exact_latent(case)
    scales = None if latent is None else plain_scales(latent)
    if latent is None or scales is None:
        return None
    return quantised(latent, scales, torch.exp2(torch.ceil(torch.log2(scales))))


def one_scale(case: Case) -> Prediction:
    """All groups of 128 with one scale, which b's records hold."""
    latent, record = exact_latent(case), case.at(case.wrong("latent_record"))
    if latent is None or record is None or latent.shape[1] % 128:
        return None
    width = latent.shape[1]
    if record.shape[1] < width + width // 32:
        return None
    scales = record[:, width : width + width // 32].contiguous().view(torch.float32)
    first = scales.flatten()[0]
    return quantised(latent, scales) if bool((scales == first).all()) else None


def rope_input(case: Case) -> Prediction:
    if case.name == "query_rope":
        query = case.right("query")
        return None if query is None else query[..., -case.base.shape[-1] :]
    kv = case.right("kv_a_proj")
    return None if kv is None else kv[..., -case.base.shape[-1] :]


def turned(layout: Layout, yarn: bool = True, shift: int = 0) -> Callable[[Case], Prediction]:
    def predict(case: Case) -> Prediction:
        x, inverse = rope_input(case), frequencies(case.config, yarn)
        if x is None or inverse is None:
            return None
        return case.at(rotate(x, torch.arange(len(x)) + shift, inverse, layout))

    return predict


def scaled_rope(case: Case) -> Prediction:
    """cos and sin times a constant, as YaRN's attention factor would be: it is in the softmax scale already."""
    factor = factor_of(case.target.float(), case.base.float())
    return None if abs(factor - 1) < 1e-2 else case.base.float() * factor


def attended(
    scale_of: Callable[[Case, float], float | None], dense: bool = False, rope: bool = True
) -> Callable[[Case], Prediction]:
    """Attention with scale_of(case, d^-0.5), over b's selection or everything, with or without the rotated part."""

    def predict(case: Case) -> Prediction:
        query, rotated = case.at(case.own("query")), case.at(case.own("query_rope"))
        keys, value, key_rope = case.own("key_nope"), case.own("value"), case.own("key_rope")
        selection = case.at(case.own("selection"))
        if query is None or rotated is None or keys is None or value is None or key_rope is None:
            return None
        nope, width = keys.shape[-1], rotated.shape[-1]
        scale = scale_of(case, (nope + width) ** -0.5)
        if scale is None or (selection is None and not dense):
            return None
        count = len(keys)
        allowed = torch.arange(count) <= case.rows[:, None]
        if not dense and selection is not None:
            allowed = membership(selection, count)
        factor = 1.0 if rope else 0.0
        q = torch.cat((query[..., :nope], rotated * factor), -1)
        k = torch.cat((keys, key_rope[:, None].expand(-1, keys.shape[1], -1)), -1).nan_to_num(0.0)
        return attend(q, k, value, allowed, scale)

    return predict


def right_scale(case: Case, plain: float) -> float:
    return plain * mscale(case.config) ** 2


def powered(power: int) -> Callable[[Case, float], float | None]:
    """d^-0.5 * mscale^power, unless there is no mscale."""

    def scale(case: Case, plain: float) -> float | None:
        factor = mscale(case.config)
        return None if factor == 1.0 else float(plain * factor**power)

    return scale


NORMS = ("attention_norm", "compressed_query", "latent", "mlp_norm")
ROPE = ("query_rope", "key_rope")
HEADS = ("attention_heads",)
HYPOTHESES = (
    Hypothesis("latent-norm-eps", ("compressed_query", "latent"), "the norm of a compressed vector with rms_norm_eps in place "
               "of 1e-6", normed_with(lambda case: case.number("rms_norm_eps"))),
    Hypothesis("norm-eps-default", ("attention_norm", "mlp_norm"), "an RMSNorm with 1e-6 in place of rms_norm_eps",
               normed_with(lambda case: LATENT_EPS)),
    Hypothesis("norm-eps-1e-5", NORMS, "an RMSNorm with the epsilon 1e-5", normed_with(eps_1e_5)),
    Hypothesis("norm-missing", NORMS, "the value before its RMSNorm", not_normed),
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
    Hypothesis("mla-rope-missing", ROPE, "no RoPE at all", lambda case: case.at(rope_input(case))),
    Hypothesis("rope-position-off-by-one", ROPE, "RoPE at the next position", turned("interleaved", shift=1)),
    Hypothesis("mscale-on-rope", ROPE, "cos and sin times a constant, such as YaRN's attention factor, which the softmax scale "
               "has already", scaled_rope),
    Hypothesis("mscale-missing", HEADS, "a softmax scale without YaRN's mscale^2", attended(powered(0))),
    Hypothesis("mscale-once", HEADS, "a softmax scale with mscale in place of mscale^2", attended(powered(1))),
    Hypothesis("mscale-twice", HEADS, "a softmax scale with mscale^2 applied twice", attended(powered(4))),
    Hypothesis("selection-ignored", HEADS, "attention over the whole context: the selection is computed and not used",
               attended(right_scale, dense=True)),
    Hypothesis("attention-without-rope", HEADS, "attention without the rotated part of queries and keys",
               attended(right_scale, rope=False)),
)  # fmt: skip
