"""`deepseek-v32 trace` and `compare`: record every stage of a forward pass, and find where two records differ."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import ModelOptions, option, with_options
from .prompts import Prompt, plain_tokens, read_prompts

if TYPE_CHECKING:
    from ..conformance.compare import Report


@with_options
def trace(
    options: ModelOptions,
    out: Annotated[Path, option("Directory for the trace: new, empty, or with an older trace.")],
    prompt: Annotated[str | None, option("A text; a bos token is added in front.")] = None,
    tokens: Annotated[
        Path | None, option("A file of token ids instead: a JSON array, or numbers separated by spaces or lines.")
    ] = None,
    input_file: Annotated[
        Path | None,
        option(
            'A .jsonl file instead: {"text": "…"} in each line, or tokens or messages, and optionally id. The texts run '
            "together; the trace of each is in a folder of --out with the name of its id."
        ),
    ] = None,
    layers: Annotated[
        str | None, option("Layers to record, e.g. 0,3-5. Default: all. The MTP layer follows the last one.")
    ] = None,
    chunk: Annotated[int | None, option("Tokens in a step. Default: as many as a step can hold.", min=1)] = None,
) -> None:
    """Record every stage of a forward pass. docs/conformance.md lists the stages."""
    from ...model.checkpoint.manifest import find_manifest, hash_file
    from ..conformance.tracer import trace_prompts
    from ..llm import DEMO
    from ..trace import check_target

    given = {"--prompt": prompt, "--tokens": tokens, "--input-file": input_file}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ValueError(f"the text is {' and '.join(names) or 'missing'}; expected one of {', '.join(given)}")
    texts, targets = [Prompt(1, names[0], prompt)], [out]
    if input_file is not None:
        texts = read_prompts(input_file, more=())
        targets = _folders(out, texts)
    elif tokens is not None:
        texts = [Prompt(1, names[0], read_tokens(tokens), "token_ids")]
    for target in targets:
        check_target(target)
    chosen = None if layers is None else read_layers(layers)
    llm = options.load(needs_text=any(text.source != "token_ids" for text in texts), reuse_pages=False)
    ids = []
    for text in texts:
        try:
            ids.append(llm.requests.from_tokens(plain_tokens(llm, text), min_new_tokens=0).prompt)
        except ValueError as error:
            raise ValueError(text.refusal(error)) from None
    directory = options.model or DEMO
    manifest = find_manifest(directory)
    name = {"directory": directory.name, "manifest": None if manifest is None else hash_file(manifest.path)}
    with llm.driver.engine() as engine:
        for target, tokens_of, found in zip(targets, ids, trace_prompts(engine, ids, chosen, chunk), strict=True):
            found.manifest |= {"checkpoint": name, "device": str(llm.device), "backend": options.backend}
            found.save(target)
            size = sum(tensor.nbytes for tensor in found.stages.values()) / 1e6
            print(f"{target}: {len(found.stages)} stages of {len(tokens_of)} tokens, {size:.1f} MB", file=sys.stderr)


def _folders(out: Path, texts: Sequence[Prompt]) -> list[Path]:
    """Make the directory of several traces; return a folder in it for each text. ValueError for an id that cannot name a folder."""
    out.mkdir(exist_ok=True)
    names = [str(text.id) for text in texts]
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        if not re.fullmatch(r"\w[\w.-]{0,99}", name) or name in names[:number]:
            expected = "a folder's name of its own: letters, digits and ._-"
            raise ValueError(f"{text.place}: id is {text.id!r:.100}; expected {expected}")
    return [out / name for name in names]


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
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> None:
    """Find the first stage at which two traces differ. Exit code 0: they agree; 1: they differ; 2: a trace cannot be read."""
    from ..conformance.compare import compare as compare_traces
    from ..trace import Trace

    report = compare_traces(Trace.load(right), Trace.load(other))
    print(json.dumps(as_object(report)) if as_json else "\n".join(as_lines(report)))
    if not report.equal:
        raise typer.Exit(DIFFERENT)


def as_lines(report: "Report") -> list[str]:
    lines = [f"{len(report.compared)} stages compared, in order of computation"]
    reasons: dict[str, list[str]] = {}
    for name, reason in report.left_out.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"left out, {reason}: {', '.join(names[:3])}{more}")
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
    values, difference = {"equal": report.equal, **vars(report)}, None
    if (first := values.pop("first")) is not None:
        difference = {"stage": first.stage, "how": first.what, "positions": first.rows.nonzero()[:, 0].tolist()}
    return values | {"first_difference": difference, "diagnoses": [vars(each) for each in report.diagnoses]}
