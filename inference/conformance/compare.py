"""Compares two traces: the first stage that differs beyond its tolerance, how, and what is known to differ like that."""

from dataclasses import dataclass, field
from typing import Any

import torch

from ..trace import STAGES, Trace, describe_rows, order, parse_name
from .diagnosis import Case, Diagnosis, diagnose, membership
from .hypotheses import HYPOTHESES

SCORES_OF = {"selection": "index_scores", "router_choice": "router_scores"}  # by what a choice is made
# A chosen id may score this much below the best other one, relative to the row's root mean square: scores may be in bf16.
OWN_MARGIN = 5e-3


def follows(
    chosen: torch.Tensor, right: torch.Tensor, scores: torch.Tensor, margin: float, config: dict[str, Any]
) -> torch.Tensor:
    """bool [T]: rows whose chosen ids [T, ids] have the largest scores [T, N], within the margin, and the right number."""
    chosen = torch.nn.functional.pad(chosen, (0, scores.shape[1] - chosen.shape[1]))
    known = scores.isfinite()
    size = margin * torch.where(known, scores, 0.0).norm(dim=1) / known.sum(1).clamp_min(1).sqrt()
    lowest = torch.where(chosen, scores, torch.inf).amin(1)
    eligible, undecided = _in_groups(scores, size, config)
    highest = torch.where(known & eligible & ~chosen, scores, -torch.inf).amax(1)
    fits = (lowest >= highest - size) & ~(chosen & ~known).any(1) & ~(chosen & ~eligible).any(1)
    return (fits | undecided) & (chosen.sum(1) == right.sum(1))


def _in_groups(scores: torch.Tensor, size: torch.Tensor, config: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """bool [T, N]: what the best groups have; bool [T]: rows in which a kept and a dropped group are equal within `size`."""
    groups, kept = config.get("n_group", 1), config.get("topk_group", 1)
    if groups == 1 or kept >= groups or scores.shape[1] % groups:
        return torch.ones_like(scores, dtype=torch.bool), torch.zeros(len(scores), dtype=torch.bool)
    by_group = scores.unflatten(1, (groups, -1))
    best = by_group.topk(min(2, by_group.shape[2]), 2).values.sum(2)
    ordered = best.sort(1, descending=True)
    inside = torch.zeros_like(best, dtype=torch.bool).scatter(1, ordered.indices[:, :kept], True)
    undecided = ordered.values[:, kept - 1] - ordered.values[:, kept] <= 2 * size
    return inside[..., None].expand_as(by_group).flatten(1), undecided


# Largest |b - a| / |a| of a token's row between right implementations, by the precisions of both traces. It grows with the square
# root of the depth. exact: fp32 sums in another order give 4e-6 after three layers. bf16: three roundings of 2^-9 a stage. fp8:
# a few e4m3 values in the next code, which the next layer quantises again. fp8 and another: e4m3's own 2^-4, averaged over a row.
TOLERANCE = {
    ("exact", "exact"): 1e-4,
    ("bf16", "bf16"): 2e-2,
    ("fp8", "fp8"): 6e-2,
    ("bf16", "exact"): 2e-2,
    ("exact", "fp8"): 1.5e-1,
    ("bf16", "fp8"): 1.5e-1,
}
# A choice between equal values may fall either way. Its token is left out from then on. The other tokens read its keys in later
# layers, and may differ by this times the square root of the share of such tokens.
AFTER_CLOSE_CALLS = 0.15
# This share of the tokens may differ by any amount: a changed key may be most of what they attend to.
FEW = 0.05
RECORD_BYTES = 0.6  # largest share of bytes that differ between cache records of numbers that agree; other layouts: 0.9
# Stages whose errors are larger than their inputs': sums of positive and negative terms cancel, and an MLP multiplies two errors.
AMPLIFIED = {
    "index_scores": 4.0,
    "router_logits": 2.0,
    "index_weights": 2.0,
    "router_weights": 2.0,
    "shared_expert": 2.5,
    "mlp_output": 2.5,
    "index_query_scales": 15.0,  # at the edge between two powers of two, one of a token's scales may be twice the other's
}


@dataclass(frozen=True)
class Difference:
    """The difference of a stage of b from a's."""

    stage: str
    what: tuple[str, ...]  # lines
    rows: torch.Tensor  # bool [T]: the tokens that differ


@dataclass
class Report:
    """The result of a comparison."""

    compared: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # stages, and why
    close_calls: int = 0  # tokens whose choice differs between values that are equal within tolerance
    first: Difference | None = None
    diagnoses: list[Diagnosis] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return self.first is None


def compare(a: Trace, b: Trace) -> Report:
    """Walk the stages in order of computation up to the first difference; a is right. ValueError for traces of different texts."""
    layers = min(a.layers, b.layers)
    names = sorted(a.stages.keys() & b.stages.keys(), key=lambda name: order(name, layers))
    if not names:
        raise ValueError("the traces have no stage in common; expected the names of docs/conformance.md in both")
    counts = [max(tensor.shape[0] for tensor in trace.stages.values()) for trace in (a, b)]
    if counts[0] != counts[1]:
        raise ValueError(f"the traces have {counts[0]} and {counts[1]} tokens; expected the same text in both")
    report = Report()
    for one, other, label in ((a, b, "second"), (b, a, "first")):
        report.left_out |= {name: f"not in the {label} trace" for name in one.stages if name not in other.stages}
    tainted = torch.zeros(counts[0], dtype=torch.bool)
    for name in names:
        reason = _not_comparable(a, b, name, tainted)
        if reason:
            report.left_out[name] = reason
            continue
        difference, close = _difference(a, b, name, tainted)
        if difference is not None and tainted.any() and difference.rows.sum() <= FEW * counts[0]:
            close, difference = close | difference.rows, None
        report.close_calls += int((close & ~tainted).sum())
        tainted |= close
        report.compared.append(name)
        if difference is not None:
            report.first = difference
            report.diagnoses = diagnose(Case(a, b, name, difference.rows), HYPOTHESES) if difference.rows.any() else []
            break
    return report


def tolerance(a: Trace, b: Trace, full: str, tainted: torch.Tensor) -> float:
    """The largest relative difference of a row between right implementations. tainted: bool [T], where earlier choices differ."""
    one, other = sorted((a.precision, b.precision))
    base = TOLERANCE.get((one, other), max(TOLERANCE.values()))
    name, layer = parse_name(full) or (full, None)
    depth = layer if layer is not None else 0 if name in ("tokens", "embedding") else min(a.layers, b.layers, 100)
    slack = AFTER_CLOSE_CALLS * float(tainted.double().mean()) ** 0.5
    return float((base * (1 + depth) ** 0.5 + slack) * AMPLIFIED.get(name, 1.0))


def _not_comparable(a: Trace, b: Trace, full: str, tainted: torch.Tensor) -> str:
    """Say why a stage of both traces is not compared; empty if it is compared."""
    name, _ = parse_name(full) or (full, None)
    if STAGES[name].kind == "bytes" and ({a.precision, b.precision} != {"fp8"} or tainted.any()):
        return "bytes are compared only between traces in fp8, and only up to the first close call"
    if name == "index_query_scales" and {a.precision, b.precision} != {"fp8"}:
        return "scales are compared only between traces in fp8"
    count = min(len(a.stages[full]), len(b.stages[full]))
    both = a.rows(full)[:count] & b.rows(full)[:count]
    if not both.any():
        return "no token has it in both traces"
    if not (both & ~tainted[:count]).any():
        return "an earlier choice was too close to call for every token"
    return ""


def _difference(a: Trace, b: Trace, full: str, tainted: torch.Tensor) -> tuple[Difference | None, torch.Tensor]:
    """Return a stage's difference, if any, and the tokens whose choice was too close to call. `tainted` tokens are skipped."""
    x, y = a.stages[full], b.stages[full]
    count = min(len(x), len(y))
    kind, none = STAGES[(parse_name(full) or ("", None))[0]].kind, torch.zeros(len(tainted), dtype=torch.bool)
    if x.shape[1:] != y.shape[1:] and kind != "choice":
        lines = (f"its shape is {list(y.shape)}; expected {list(x.shape)}",)
        return Difference(full, lines, none), none
    rows = none.clone()
    rows[:count] = a.rows(full)[:count] & b.rows(full)[:count] & ~tainted[:count]
    if kind == "choice":
        return _compare_choices(a, b, full, rows, tainted)
    if kind == "bytes":
        share = (x[:count] != y[:count]).flatten(1).double().mean(1)
        wrong = none.clone()
        wrong[:count] = (share > RECORD_BYTES) & rows[:count]
        if not wrong.any():
            return None, none
        part = float(share[wrong[:count]].mean())
        line = f"{part:.0%} of the bytes differ, although the numbers before agree: the layout"
        return Difference(full, (line, *_where(wrong, rows)), wrong), none
    return _compare_values(a, b, full, rows, tolerance(a, b, full, tainted)), none


def _compare_values(a: Trace, b: Trace, full: str, rows: torch.Tensor, limit: float) -> Difference | None:
    count = min(len(a.stages[full]), len(b.stages[full]))
    x, y = (trace.stages[full][:count].float().flatten(1) for trace in (a, b))
    both = x.isfinite() & y.isfinite()
    unequal = (x.isfinite() != y.isfinite()).any(1)
    error = torch.where(both, y - x, 0.0).norm(dim=1) / torch.where(both, x, 0.0).norm(dim=1).clamp_min(1e-20)
    wrong = torch.zeros_like(rows)
    wrong[:count] = rows[:count] & ((error > limit) | unequal)
    if not wrong.any():
        return None
    chosen = error[wrong[:count]]
    largest, median = float(chosen.max()), float(chosen.median())
    lines = [f"relative error up to {largest:.2g}, median {median:.2g}; tolerance {limit:.1g}"]
    if unequal[wrong[:count]].any():
        infinite = int((x.isfinite() != y.isfinite())[wrong[:count]].sum())
        lines.append(f"{infinite} values are finite in one trace only")
    size = (y - x).abs().masked_fill(~both, 0.0)[wrong[:count]].view(-1, *a.stages[full].shape[1:])
    if size.dim() == 3:
        lines += _part("heads", size.mean((0, 2)))
    if size.dim() > 1:
        axis = "positions of keys" if full.endswith("index_scores") else "dims"
        lines += _part(axis, size.mean(tuple(range(size.dim() - 1))))
    return Difference(full, (*lines, *_where(wrong, rows)), wrong)


def _compare_choices(
    a: Trace, b: Trace, full: str, rows: torch.Tensor, tainted: torch.Tensor
) -> tuple[Difference | None, torch.Tensor]:
    """Compare sets. They may differ where b's own scores allow both: then the choice was too close to call."""
    count = min(len(a.stages[full]), len(b.stages[full]))
    sets = [trace.stages[full][:count].view(count, -1) for trace in (a, b)]
    width = max(int(max(each.max() for each in sets)) + 1, 1)
    masks = [membership(each, width) for each in sets]
    other = torch.zeros_like(rows)
    other[:count] = (masks[0] != masks[1]).any(1) & rows[:count]
    close = torch.zeros_like(rows)
    source = SCORES_OF.get((parse_name(full) or ("", None))[0])
    if source is not None:
        scored = full.rpartition(".")[0] + "." + source
        own = scored in b.stages
        scores = (b if own else a).stages.get(scored)
        margin = OWN_MARGIN if own else 2 * tolerance(a, b, scored, tainted)
        if scores is not None and masks[0].shape[1] <= scores.shape[1]:
            config = (a.config or b.config) if source == "router_scores" else {}
            close[:count] = other[:count] & follows(masks[1], masks[0], scores[:count].float(), margin, config)
    wrong = other & ~close
    if not wrong.any():
        return None, close
    right, chosen, common = (
        float(mask.sum(1)[wrong[:count]].double().mean()) for mask in (*masks, masks[0] & masks[1])
    )
    line = f"{chosen:.1f} chosen a token on average, {common:.1f} of the {right:.1f} right ones"
    return Difference(full, (line, *_where(wrong, rows)), wrong), close


def _part(axis: str, sizes: torch.Tensor) -> list[str]:
    """Name the indices of an axis that have most of the difference, unless all have."""
    large = sizes > 0.05 * sizes.max()
    if bool(large.all()) or not bool(large.any()):
        return []
    return [f"{axis} {_spans(large)} of {len(sizes)}"]


def _where(wrong: torch.Tensor, rows: torch.Tensor) -> list[str]:
    return [f"{int(wrong.sum())} of {int(rows.sum())} tokens, at positions {_spans(wrong)}"]


def _spans(mask: torch.Tensor, most: int = 6) -> str:
    """ "0-31, 64": the true indices."""
    spans = [f"{first}-{stop - 1}" if stop - first > 1 else f"{first}" for first, stop in describe_rows(mask)]
    return ", ".join(spans[:most]) + (f" and {len(spans) - most} more" if len(spans) > most else "")
