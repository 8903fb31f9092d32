"""Comparing traces: right engines agree, each seeded bug is found at its stage and named, and foreign traces are judged fairly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.schedules import OF_BUG, SCHEDULES
from conformance.small_model import load, text
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.compare import HYPOTHESES, Report, compare
from deepseek_v32.inference.conformance.diagnosis import NotApplicable, frequencies, mscale
from deepseek_v32.inference.trace import Trace, parse_name
from golden.bugs import BUGS
from golden.bugs.bug import Bug

Right = Callable[[str], tuple[LLM, Trace]]
TRACED = [
    pytest.param(bug, precision, id=f"{bug.name}, {precision}")
    for bug in BUGS.values()
    if "trace" in bug.shows
    for precision in ("exact", "fp8")
    # The precisions differ in how they compute the indexer and the caches; elsewhere one is enough.
    if precision in bug.precisions and (precision == "exact" or bug.precisions == {"fp8"} or "index" in bug.name)
]


def assert_named(report: Report, bug: Bug, evidence: Callable[..., None], row: str, case: str = "exact") -> None:
    evidence(
        row,
        f"{bug.name}, {case}",
        bug=bug.name,
        stage=report.first and report.first.stage,
        named=[diagnosis.name for diagnosis in report.diagnoses[:1]],
        explained=[round(diagnosis.explained, 4) for diagnosis in report.diagnoses[:1]],
    )
    assert report.first is not None, "not found"
    name, _ = parse_name(report.first.stage) or ("", None)
    assert name == bug.stage, (report.first, report.diagnoses)
    assert [diagnosis.name for diagnosis in report.diagnoses[:1]] == [bug.name], report.first


@pytest.mark.parametrize("bug, precision", TRACED)
def test_a_bug_is_named_at_its_stage(bug: Bug, precision: str, right: Right, evidence: Callable[..., None]) -> None:
    llm, trace = right(precision)
    with bug.seed():
        wrong = llm.trace(text())
    assert_named(compare(trace, wrong), bug, evidence, "trace", precision)


@pytest.mark.parametrize("name", OF_BUG)
def test_a_bug_of_a_schedule_is_named(
    name: str, checkpoint: Callable[[str], Path], right: Right, evidence: Callable[..., None]
) -> None:
    with BUGS[name].seed():
        tokens, wrong = OF_BUG[name](load(checkpoint("exact"), "exact", speculative_tokens=0))
    assert_named(compare(right("exact")[0].trace(tokens), wrong), BUGS[name], evidence, "scenario")


def test_at_least_22_bugs_are_declared_for_traces() -> None:
    declared = [bug for bug in BUGS.values() if bug.shows & {"trace", "scenario"}]
    assert len(declared) >= 22
    assert {bug.name for bug in declared} <= {hypothesis.name for hypothesis in HYPOTHESES}
    assert {bug.name for bug in declared} == {parameter.values[0].name for parameter in TRACED} | OF_BUG.keys()


@pytest.mark.parametrize("precision, drafts", [("exact", 0), ("exact", 3), ("fp8", 0)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_gives_the_trace_of_one_pass(
    schedule: str,
    precision: str,
    drafts: int,
    checkpoint: Callable[[str], Path],
    right: Right,
    caplog: pytest.LogCaptureFixture,
    evidence: Callable[..., None],
) -> None:
    tokens, trace = SCHEDULES[schedule](load(checkpoint(precision), precision, speculative_tokens=drafts))
    report = compare(right(precision)[0].trace(tokens), trace)
    evidence("right, trace", f"{schedule}, {precision}, {drafts} drafts", equal=report.equal)
    assert report.equal, (report.first, report.diagnoses)
    assert len(report.compared) >= 55
    assert not caplog.records, "the engine has met no fault while it was recorded"
    assert precision == "fp8" or not report.close_calls


@pytest.mark.parametrize("one, other", [("exact", "bf16"), ("exact", "fp8"), ("bf16", "fp8")])
def test_precisions_agree_within_their_rounding(
    one: str, other: str, checkpoint: Callable[[str], Path], evidence: Callable[..., None]
) -> None:
    traces = [load(checkpoint("fp8"), precision).trace(text(150)) for precision in (one, other)]
    for a, b in (traces, traces[::-1]):
        report = compare(a, b)
        evidence("right, trace", f"{one} and {other}", equal=report.equal)
        assert report.equal, (report.first, report.diagnoses)


def edited(trace: Trace, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Trace:
    """Return only the stages, one of them changed, as another program might have dumped them."""
    stages = {key: value for key, value in trace.stages.items() if not key.endswith("_record")}
    return Trace(stages | {name: change(stages[name].clone())}, {})


def test_a_difference_is_located(right: Right) -> None:
    def change(values: torch.Tensor) -> torch.Tensor:
        values[7:9, 2, 10:12] += 10.0
        return values

    _, trace = right("exact")
    report = compare(trace, edited(trace, "layers.1.query", change))
    assert report.first is not None and report.first.stage == "layers.1.query"
    text = "; ".join(report.first.what)
    assert "heads 2 of 4" in text and "dims 10-11 of 96" in text and "2 of 330 tokens, at positions 7-8" in text
    assert not report.diagnoses, "no formula gives this"


def test_a_convention_of_rope_is_told_from_a_bug(right: Right) -> None:
    _, trace = right("exact")
    moved = edited(trace, "layers.0.key_rope", lambda x: torch.cat((x[:, 0::2], x[:, 1::2]), 1))
    assert [found.name for found in compare(trace, moved).diagnoses] == ["rope-dims-moved"]


def test_equal_scores_may_be_chosen_either_way(right: Right) -> None:
    """A selection that differs in members that score like the last one is right; the token is left out of what follows."""
    _, trace = right("exact")
    scores = trace.stages["layers.0.index_scores"].clone()
    chosen = trace.stages["layers.0.selection"].clone()
    others = [s for s in range(201) if s not in set(chosen[200].tolist())]
    scores[200, others[0]] = scores[200, int(chosen[200, 5])] = scores[200, chosen[200].long()].min()
    chosen[200, 5] = others[0]
    a = edited(trace, "layers.0.index_scores", lambda _: scores)
    b = edited(a, "layers.0.selection", lambda _: chosen.sort(1).values)
    report = compare(a, edited(b, "layers.0.attention_heads", lambda x: x.index_fill(0, torch.tensor([200]), 9.0)))
    assert report.equal and report.close_calls == 1
    far = edited(trace, "layers.0.selection", lambda _: chosen.sort(1).values)
    assert not compare(trace, far).equal, "by its real scores the member is no match"


@pytest.mark.parametrize(
    "stages, message",
    [
        ({"logits": torch.zeros(330, 256)}, None),
        (
            {"layers.0.latent": torch.zeros(12, 256)},
            "the traces have 330 and 12 tokens; expected the same text in both",
        ),
        ({"mtp_norm": torch.zeros(330, 160)}, None),
    ],
)
def test_partial_traces(stages: dict[str, torch.Tensor], message: str | None, right: Right) -> None:
    _, trace = right("exact")
    if message is None:
        report = compare(trace, Trace(stages))
        assert not report.equal and report.compared == list(stages)
        return
    with pytest.raises(ValueError, match=message):
        compare(trace, Trace(stages))


def test_shapes_that_differ_are_said(right: Right) -> None:
    _, trace = right("exact")
    report = compare(trace, edited(trace, "layers.0.latent", lambda x: x[:, :100]))
    assert report.first is not None
    assert report.first.what == ("its shape is [330, 100]; expected [330, 256]",)


@pytest.mark.parametrize(
    "yarn",
    [
        {"beta_fast": 32},
        {"factor": "40", "original_max_position_embeddings": 4096},
        {"factor": 40, "original_max_position_embeddings": 0},
    ],
    ids=str,
)
def test_a_foreign_configuration_may_say_too_little(yarn: dict[str, Any]) -> None:
    for formula in (frequencies, mscale):
        with pytest.raises(NotApplicable):
            formula({"qk_rope_head_dim": 8, "rope_theta": 10000, "yarn": yarn})
