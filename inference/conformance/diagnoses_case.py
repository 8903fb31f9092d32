"""What a diagnosis works with: two traces that agree up to one stage, and hypotheses about how that stage came to differ.

A hypothesis is a formula: applied to the stages before the difference, it predicts the wrong values. If the prediction is what the
other implementation has, the formula is what it computes. Nothing is looked up by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..trace import STAGES, Trace, full_name, parse_name
from .references import REFERENCES

SAMPLE = 160  # rows of a stage on which hypotheses are tested, those that differ most evenly spread


@dataclass(frozen=True)
class Hypothesis:
    """A way to be wrong."""

    name: str
    stages: tuple[str, ...]  # the stages that it explains
    says: str  # to the user, completing "this is what … gives"
    predict: Callable[["Case"], torch.Tensor | None]  # the wrong values of `Case.rows`; None if it does not apply
    weak: bool = False  # it describes a pattern and predicts no numbers, so that any formula that fits is better


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
    """The first stage at which b differs from a, which is right."""

    a: Trace
    b: Trace
    full: str  # of the stage
    differing: torch.Tensor  # bool [T]
    name: str = field(init=False)
    layer: int | None = field(init=False)

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

    def number(self, key: str) -> float | None:
        value = self.config.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def right(self, name: str, shift: int = 0) -> torch.Tensor | None:
        """A stage of this layer (or of the layer `shift` further) in a, as fp32 or integers."""
        return _of(self.a, name, self.layer, shift)

    def wrong(self, name: str) -> torch.Tensor | None:
        """A stage of this layer in b."""
        return _of(self.b, name, self.layer, 0)

    def own(self, name: str) -> torch.Tensor | None:
        """What b computed with: its own stage if it has that, else a's, which agrees with it."""
        found = self.wrong(name)
        return self.right(name) if found is None else found

    def computed(self, name: str) -> torch.Tensor:
        """bool [T]: the tokens for which b ran a stage of this layer; all of them if its trace does not say."""
        full = full_name(name, self.layer)
        return self.b.rows(full) if full in self.b.stages else torch.zeros(len(self.differing), dtype=torch.bool)

    def before(self) -> torch.Tensor | None:
        """The residual stream that enters the layer."""
        return self.right("residual", -1) if self.layer else self.a.stages.get("embedding")

    @cached_property
    def target(self) -> torch.Tensor:
        """What b has, at `rows`."""
        return self.b.stages[self.full][self.rows]

    @cached_property
    def base(self) -> torch.Tensor:
        """What a has, at `rows`."""
        return self.a.stages[self.full][self.rows]

    def at(self, values: torch.Tensor | None) -> torch.Tensor | None:
        """The `rows` of values [T, …]."""
        return None if values is None else values[self.rows]


def _of(trace: Trace, name: str, layer: int | None, shift: int) -> torch.Tensor | None:
    inside = full_name(name, None if layer is None else layer + shift)
    found = trace.stages.get(inside)
    found = trace.stages.get(name) if found is None and name in STAGES else found
    return None if found is None else found.float() if found.is_floating_point() else found


def diagnose(case: Case, hypotheses: tuple[Hypothesis, ...]) -> list[Diagnosis]:
    """The hypotheses that predict at least half of what is wrong, the best first."""
    found = []
    for hypothesis in hypotheses:
        if case.name in hypothesis.stages and len(case.rows):
            predicted = hypothesis.predict(case)
            if predicted is None:
                continue
            choice = STAGES[case.name].kind == "choice"
            explained = _equal_sets(case, predicted) if choice else _explained(case, predicted)
            if explained > 0.5:
                found.append(
                    Diagnosis(
                        hypothesis.name,
                        hypothesis.says,
                        REFERENCES.get(hypothesis.name, ""),
                        explained,
                        hypothesis.weak,
                    )
                )
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
    # A prediction that is finite elsewhere than b is none.
    same = (target.isfinite() == predicted.isfinite()).double().mean()
    return float((1 - left / whole) * same) if whole > 0 else float(same) * 0.99 if left == 0 else 0.0


def _equal_sets(case: Case, predicted: torch.Tensor) -> float:
    """The share of the rows whose sets are equal; sets int [R, K], ascending, -1 behind."""
    width = max(predicted.shape[1], case.target.shape[1])

    def padded(ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(ids.long(), (0, width - ids.shape[1]), value=-1)

    return float((padded(predicted) == padded(case.target)).all(1).double().mean())
