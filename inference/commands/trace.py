"""`deepseek-v32 trace` and `compare`: record every stage of a forward pass, and find where two records differ."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .loading import demo_path
from .options import ModelOptions, with_options

if TYPE_CHECKING:
    from ..conformance.compare import Report


@with_options
def trace(
    options: ModelOptions,
    out: Annotated[Path, typer.Option("--out", help="Directory for the trace: new, empty, or with an older trace.")],
    prompt: Annotated[str | None, typer.Option("--prompt", help="A text; a bos token is added in front.")] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens", help="A file of token ids instead: a JSON array, or numbers separated by spaces or lines."
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers", help="Layers to record, e.g. 0,3-5. Default: all. The MTP layer follows the last one."
        ),
    ] = None,
    chunk: Annotated[
        int | None, typer.Option("--chunk", min=1, help="Tokens in a step. Default: as many as a step can hold.")
    ] = None,
) -> None:
    """Record every stage of a forward pass over a text. docs/conformance.md lists the stages."""
    from ...model.checkpoint.manifest import find_manifest, hash_file
    from ..trace import check_target

    if (prompt is None) == (tokens is None):
        given = "both are given" if prompt is not None else "neither is given"
        raise ValueError(f"--prompt and --tokens: {given}; expected one of them")
    check_target(out)
    ids = None if tokens is None else read_tokens(tokens)
    chosen = None if layers is None else read_layers(layers)
    llm = options.load(needs_text=prompt is not None, reuse_pages=False)
    if ids is None:
        assert llm.tokenizer is not None and prompt is not None
        if not prompt:
            raise ValueError("--prompt is empty; expected at least 1 character")
        ids = llm.tokenizer.encode_prompt(prompt)
    found = llm.trace(ids, chosen, chunk)
    directory = options.model or demo_path()
    manifest = find_manifest(directory)
    name = {"directory": directory.name, "manifest": None if manifest is None else hash_file(manifest.path)}
    found.manifest |= {"checkpoint": name, "device": str(llm.device), "backend": options.backend}
    found.save(out)
    size = sum(tensor.nbytes for tensor in found.stages.values())
    print(f"{out}: {len(found.stages)} stages of {len(ids)} tokens, {size / 1e6:.1f} MB", file=sys.stderr)


def read_tokens(path: Path) -> list[int]:
    """Read token ids from a file. ValueError for anything else in it."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
    except ValueError:
        values = None
    if not isinstance(values, list) or not values or not all(type(value) is int for value in values):
        raise ValueError(f"--tokens is {str(path)!r}; expected a file of token ids: [1, 2, 3], or 1 2 3")
    return values


def read_layers(text: str) -> list[int]:
    """ "0,3-5" -> [0, 3, 4, 5]. ValueError for anything else."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()) or len(part) > 20:
            raise ValueError(f"--layers is {text!r}; expected numbers and ranges, e.g. 0,3-5")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < 100_000:
            raise ValueError(f"--layers has the range {part!r}; expected an ascending one of layer numbers")
        layers += range(low, high + 1)
    return layers


DIFFERENT = 1


def compare(
    right: Annotated[Path, typer.Argument(help="Directory of the right trace.", show_default=False)],
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
    """Describe the report for people."""
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
    """Return the report as JSON values."""
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
