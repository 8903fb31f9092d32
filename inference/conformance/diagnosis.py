"""Two traces that agree up to one stage, hypotheses about how that stage came to differ, and the formulas they are made of.

A hypothesis is a formula: applied to the stages before the difference, it predicts the wrong values. If the prediction is what the
other implementation has, the formula is what it computes. Nothing is looked up by name.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import torch

from ...kernels.reference.hadamard import hadamard_transform
from ...kernels.reference.rope import rotate_index
from ...model.config import YarnScaling
from ...model.rope import inverse_frequencies
from ..trace import STAGES, Trace, full_name, parse_name
from .references import REFERENCES

Prediction = torch.Tensor | None  # wrong values of `Case.rows`; None: they would be right, or have another name
SAMPLE = 160  # rows of a stage on which hypotheses are tested, spread evenly over the differing ones


class NotApplicable(Exception):
    """The traces lack what a formula needs."""


@dataclass(frozen=True)
class Hypothesis:
    """A way to be wrong."""

    name: str
    stages: tuple[str, ...]  # the stages that it explains
    says: str  # to the user, completing "this is what … gives"
    predict: Callable[["Case"], Prediction]  # may raise NotApplicable
    weak: bool = False  # it describes a pattern without numbers; any formula that fits is better


@dataclass(frozen=True)
class Diagnosis:
    """A hypothesis that holds."""

    name: str
    says: str
    seen: str  # where an implementation had it: "owner/repository#number"
    explained: float  # of the squared difference, or of the rows of a choice: up to 1
    weak: bool  # the pattern fits, no numbers were predicted


@dataclass
class Case:
    """The first stage at which b differs from a, which is right. Methods raise NotApplicable for what is not there."""

    a: Trace
    b: Trace
    full: str  # of the stage
    differing: torch.Tensor  # bool [T]

    def __post_init__(self) -> None:
        parsed = parse_name(self.full)
        assert parsed is not None
        self.name, self.layer = parsed

    @cached_property
    def rows(self) -> torch.Tensor:
        """int64 [R]: the rows on which hypotheses are tested."""
        rows = self.differing.nonzero()[:, 0]
        return rows[:: max(len(rows) // SAMPLE, 1)][:SAMPLE] if len(rows) > SAMPLE else rows

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.a.config or self.b.config

    def number(self, key: str, default: float | None = None) -> float:
        value = self.config.get(key)
        value = default if isinstance(value, bool) or not isinstance(value, int | float) else value
        if value is None:
            raise NotApplicable
        return float(value)

    def right(self, name: str, shift: int = 0) -> torch.Tensor:
        """A stage of this layer (or of the layer `shift` further) in a, as fp32 or integers."""
        return _of(self.a, name, self.layer, shift)

    def wrong(self, name: str) -> torch.Tensor:
        """A stage of this layer in b."""
        return _of(self.b, name, self.layer, 0)

    def own(self, name: str) -> torch.Tensor:
        """b's stage at `rows`, or a's equal one if b has none."""
        return self.own_whole(name)[self.rows]

    def own_whole(self, name: str) -> torch.Tensor:
        """The same, of all tokens."""
        try:
            return self.wrong(name)
        except NotApplicable:
            return self.right(name)

    def computed(self, name: str) -> torch.Tensor:
        """bool [T]: the tokens for which b ran a stage of this layer; no token if its trace lacks the stage."""
        full = full_name(name, self.layer)
        return self.b.rows(full) if full in self.b.stages else torch.zeros(len(self.differing), dtype=torch.bool)

    @cached_property
    def target(self) -> torch.Tensor:
        """Return b's values at `rows`."""
        return self.b.stages[self.full][self.rows]

    @cached_property
    def base(self) -> torch.Tensor:
        """Return a's values at `rows`."""
        return self.a.stages[self.full][self.rows]


def _of(trace: Trace, name: str, layer: int | None, shift: int) -> torch.Tensor:
    inside = full_name(name, None if layer is None else layer + shift)
    found = trace.stages.get(inside)
    found = trace.stages.get(name) if found is None and name in STAGES else found
    if found is None:
        raise NotApplicable
    return found.float() if found.is_floating_point() else found


def diagnose(case: Case, hypotheses: tuple[Hypothesis, ...]) -> list[Diagnosis]:
    """Return the hypotheses that predict at least half of the difference, the best first."""
    found = []
    share = _equal_sets if STAGES[case.name].kind == "choice" else _explained
    for each in hypotheses:
        if case.name in each.stages and len(case.rows):
            with suppress(NotApplicable):
                predicted = each.predict(case)
                if predicted is not None and (explained := share(case, predicted)) > 0.5:
                    found.append(Diagnosis(each.name, each.says, REFERENCES.get(each.name, ""), explained, each.weak))
    certain = any(not diagnosis.weak and diagnosis.explained > 0.9 for diagnosis in found)
    found = [diagnosis for diagnosis in found if not (certain and diagnosis.weak)]
    return sorted(found, key=lambda diagnosis: -diagnosis.explained)


def _explained(case: Case, predicted: torch.Tensor) -> float:
    """1 - |b - predicted|^2 / |b - a|^2 over what is finite."""
    target, base = case.target.float(), case.base.float()
    if predicted.shape != target.shape:
        return 0.0
    finite = target.isfinite() & predicted.isfinite() & base.isfinite()
    left = (target - predicted)[finite].double().square().sum()
    whole = (target - base)[finite].double().square().sum()
    # A prediction must be finite where b is.
    same = (target.isfinite() == predicted.isfinite()).double().mean()
    return float((1 - left / whole) * same) if whole > 0 else float(same) * 0.99 if left == 0 else 0.0


def _equal_sets(case: Case, predicted: torch.Tensor) -> float:
    """The share of the rows whose sets are equal; sets int [R, K], ascending, padded with -1."""
    width = max(predicted.shape[1], case.target.shape[1])

    def padded(ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(ids.long(), (0, width - ids.shape[1]), value=-1)

    return float((padded(predicted) == padded(case.target)).all(1).double().mean())


Layout = Literal["interleaved", "half"]


def frequencies(config: dict[str, Any], yarn: bool = True) -> torch.Tensor:
    """fp32 [R/2], with YaRN's slow dims if the configuration has it and `yarn`."""
    dim, theta = config.get("qk_rope_head_dim"), config.get("rope_theta")
    if not isinstance(dim, int) or not isinstance(theta, int | float):
        raise NotApplicable
    return inverse_frequencies(dim, float(theta), yarn_scaling(config) if yarn else None)


def mscale(config: dict[str, Any]) -> float:
    """YaRN's factor of the softmax scale, whose square counts; 1 without YaRN."""
    yarn = yarn_scaling(config)
    return 1.0 if yarn is None or yarn.factor <= 1 else 0.1 * yarn.mscale_all_dim * math.log(yarn.factor) + 1.0


def yarn_scaling(config: dict[str, Any]) -> YarnScaling | None:
    """None without YaRN. Another implementation's trace may say too little of it, or something else: NotApplicable."""
    said = config.get("yarn")
    if not isinstance(said, dict):
        return None
    given = {field.name: said[field.name] for field in fields(YarnScaling) if field.name in said}
    if not all(isinstance(number, int | float) and number >= 0 for number in given.values()):
        raise NotApplicable
    if not (given.get("factor") and given.get("original_max_position_embeddings")):
        raise NotApplicable
    return YarnScaling(**given)


def rotate(
    x: torch.Tensor, positions: torch.Tensor, inverse: torch.Tensor, layout: Layout, backwards: bool = False
) -> torch.Tensor:
    """Apply RoPE to the first R dims of x [T, …, D] at positions [T], or undo it; inverse [R/2]: the frequencies."""
    angles = positions.float()[:, None] * inverse
    return rotate_index(x, angles.cos(), angles.sin() * (-1 if backwards else 1), layout == "interleaved")


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """The Walsh-Hadamard transform of the last axis, times D^-0.5, where D must be a power of two."""
    size = x.shape[-1]
    if size & (size - 1):
        raise NotApplicable
    return hadamard_transform(x, size**-0.5)


def rms_normed(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def layer_normed(x: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)


def fitted(x: torch.Tensor, y: torch.Tensor, bias: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight [D] and bias [D] of a norm: y = x * weight + bias, by least squares over the rows that are finite."""
    rows = x.isfinite().all(1) & y.isfinite().all(1)
    x, y = x[rows].double(), y[rows].double()
    mean_x, mean_y = (x.mean(0), y.mean(0)) if bias else (torch.zeros(x.shape[1]).double(),) * 2
    centred = x - mean_x
    weight = (centred * (y - mean_y)).sum(0) / centred.square().sum(0).clamp_min(1e-30)
    return weight.float(), (mean_y - weight * mean_x).float()


def linear_map(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """W [D, D'] with y = x W, by least squares over D rows or more."""
    rows = x.isfinite().all(1) & y.isfinite().all(1)
    if int(rows.sum()) < x.shape[1]:
        raise NotApplicable
    return torch.linalg.lstsq(x[rows].double(), y[rows].double()).solution.float()


def factor_of(wrong: torch.Tensor, right: torch.Tensor) -> float:
    """c that makes c * right closest to wrong."""
    finite = wrong.isfinite() & right.isfinite()
    wrong, right = wrong[finite].double(), right[finite].double()
    return float((wrong * right).sum() / right.square().sum().clamp_min(1e-300))


def top_sets(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` largest of each row [R, S], -inf excluded: int64 [R, count], ascending, padded with -1; ties: the lowest."""
    count = min(count, scores.shape[1])
    order = scores.sort(dim=1, descending=True, stable=True)
    ids = torch.where(order.values[:, :count] == -torch.inf, scores.shape[1], order.indices[:, :count]).sort(1).values
    return torch.where(ids == scores.shape[1], -1, ids)


def scaled(
    least: float, fixed: Callable[[Case], torch.Tensor | float] = lambda case: 0.0
) -> Callable[[Case], Prediction]:
    """Right values times a constant, which differs from 1 by at least `least`; their part `fixed` as it is."""

    def predict(case: Case) -> Prediction:
        kept = fixed(case)
        rest = case.base.float() - kept
        factor = factor_of(case.target.float() - kept, rest)
        return None if abs(factor - 1) < least else kept + factor * rest

    return predict


def causal(scores: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Scores [R, …, S] with -inf after each row's position [R, …]."""
    return scores.masked_fill(torch.arange(scores.shape[-1]) > positions[..., None], -torch.inf)


def membership(sets: torch.Tensor, width: int) -> torch.Tensor:
    """Sets int [R, K] -> bool [R, width]."""
    mask = torch.zeros(len(sets), width + 1, dtype=torch.bool)
    inside = torch.where((sets < 0) | (sets >= width), width, sets.long())
    return mask.scatter(1, inside, True)[:, :width]


E4M3_MAX = 448.0


def quantised(x: torch.Tensor, used: torch.Tensor, stored: torch.Tensor | None = None) -> torch.Tensor:
    """x [T, D] through e4m3 with scales [T, D/128], read back with `stored` scales."""
    spread = used.repeat_interleave(128, -1)[..., : x.shape[-1]]
    values = (x / spread).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()
    return values * (spread if stored is None else stored.repeat_interleave(128, -1)[..., : x.shape[-1]])


def plain_scales(x: torch.Tensor) -> torch.Tensor:
    """amax / 448 of each group of 128, of which D must be a multiple: [T, D/128]."""
    if x.shape[-1] % 128:
        raise NotApplicable
    return x.unflatten(-1, (-1, 128)).abs().amax(-1).clamp_min(1e-4) / E4M3_MAX
