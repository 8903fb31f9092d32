"""`deepseek-v32 compare`: the first stage at which two traces differ, how, and which known bug differs like that."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..conformance.compare import Report

DIFFERENT = 1


def compare(
    right: Annotated[Path, typer.Argument(help="Directory of the trace that is right.", show_default=False)],
    other: Annotated[Path, typer.Argument(help="Directory of the trace to judge.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare two traces stage by stage. Exit code 0: they agree; 1: they differ; 2: a trace cannot be read."""
    from ..conformance.compare import compare as compare_traces
    from ..trace import Trace

    report = compare_traces(Trace.load(right), Trace.load(other))
    print(json.dumps(as_object(report)) if as_json else "\n".join(as_lines(report)))
    if not report.equal:
        raise typer.Exit(DIFFERENT)


def as_lines(report: "Report") -> list[str]:
    """The report for people."""
    lines = [f"{len(report.compared)} stages compared, in order of computation"]
    reasons: dict[str, list[str]] = {}
    for name, reason in report.left_out.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        lines.append(
            f"left out, {reason}: {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        )
    if report.close_calls:
        lines.append(f"{report.close_calls} choices were too close to call; their tokens are left out from there on")
    if report.first is None:
        return [*lines, "the traces agree within tolerance"]
    lines += [f"first difference: {report.first.stage}", *(f"  {line}" for line in report.first.what)]
    if not report.diagnoses:
        lines.append("no known bug gives this; the stages before it agree, so it lies in what computes this stage")
    for place, diagnosis in enumerate(report.diagnoses[:3]):
        seen = f" (seen in {diagnosis.seen})" if diagnosis.seen else ""
        label = "this is" if place == 0 else "or"
        share = "its pattern fits" if diagnosis.weak else f"it explains {diagnosis.explained:.1%} of the difference"
        lines += [f"{label} {diagnosis.name}: {diagnosis.says}{seen}", f"  {share}"]
    return lines


def as_object(report: "Report") -> dict[str, object]:
    """The report for programs."""
    first = report.first
    difference = (
        None
        if first is None
        else {"stage": first.stage, "how": first.what, "positions": first.rows.nonzero()[:, 0].tolist()}
    )
    return {
        "equal": report.equal,
        "compared": report.compared,
        "left_out": report.left_out,
        "close_calls": report.close_calls,
        "first_difference": difference,
        "diagnoses": [vars(diagnosis) for diagnosis in report.diagnoses],
    }
