"""`deepseek-v32 probe`: ask a server questions with known answers, and tell whether it is right or which bug it has."""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...model.checkpoint.files import writing
from .files import check_place
from .options import option

if TYPE_CHECKING:
    from ..conformance.verdict import Verdict

WRONG = 1  # exit code


def probe(
    base_url: Annotated[str, option("Address of the server's API, for example http://127.0.0.1:8000/v1")],
    model: Annotated[str | None, option("Name of the model. Default: the first that the server lists.")] = None,
    checkpoint: Annotated[
        str, option("What the server runs: demo, or wide (scripts/make_conformance_checkpoint.py).")
    ] = "demo",
    timeout: Annotated[float, option("Seconds that one answer may take.", min=1)] = 120.0,
    as_json: Annotated[bool, option("Print the verdict as one JSON line.", "--json")] = False,
    save: Annotated[Path | None, option("Write the server's answers to this JSON file.")] = None,
) -> None:
    """Say whether a server is right, or which bug it has. It must run a known checkpoint.

    The key, if the server wants one, is OPENAI_API_KEY of the environment. Exit code 1: the answers are wrong.
    """
    from ..conformance.golden import load
    from ..conformance.probe import Client, Probe, observation_json
    from ..conformance.verdict import judge

    if save is not None:
        check_place("--save", save)
    golden = load(checkpoint)
    began = time.monotonic()
    asked = 0

    def progress(name: str) -> None:
        nonlocal asked
        asked += 1
        if sys.stderr.isatty():
            print(f"\r{asked} of {len(golden.items)} questions asked ", end="", file=sys.stderr, flush=True)

    client = Client(base_url, model, os.environ.get("OPENAI_API_KEY"), timeout)
    seen = Probe(client, progress).run(golden.items)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if save is not None:
        with writing(save):
            save.write_text(observation_json(seen) + "\n", encoding="utf-8")
    verdict = judge(golden, seen)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print(json.dumps(report(verdict) | {"model": seen.model, "greedy_repeats": seen.repeats, "seconds": seconds}))
    else:
        answered = f"{len(seen.replies)} of {len(golden.items)} questions answered in {seconds} s"
        print(f"{seen.model} at {client.base_url}, {golden.checkpoint}: {answered}")
        print("\n".join(describe(verdict, seen.repeats)))
    if verdict.kind in ("bug", "other"):
        raise typer.Exit(WRONG)


def report(verdict: "Verdict") -> dict[str, Any]:
    values = dict(vars(verdict))
    matches = [dict(vars(match)) for match in verdict.matches[: max(verdict.named, 3)]]
    return values | {"matches": matches, "confidence": round(verdict.confidence, 3)}


def describe(verdict: "Verdict", repeats: bool | None) -> list[str]:
    kinds = {
        "right": "RIGHT: nothing differs by more than right implementations differ from each other.",
        "bug": "WRONG, and it looks like a known bug:",
        "other": "WRONG, but unlike all known bugs. The nearest:",
        "unknown": "NO VERDICT: no answer of the server can be compared.",
    }
    lines = [kinds[verdict.kind]]
    if verdict.kind in ("bug", "other"):
        shown = verdict.matches[: verdict.named or 2]
        for match in shown:
            where = f" (seen in {match.reference})" if match.reference else ""
            lines.append(f"  {match.name}{where}, similarity {max(match.similarity, 0):.0%}")
        if verdict.named > 1:
            lines.append("  These cannot be told apart from outside.")
        if verdict.named and verdict.named < len(verdict.matches):
            following = verdict.matches[verdict.named]
            lines.append(f"  the next one: {following.name}, {max(following.similarity, 0):.0%}")
    if verdict.deviations:
        lines.append("Deviations of log-probabilities by group (0 means rounding noise):")
    lines += [
        f"  {group}: {value:.2f} of {verdict.compared[group]} tokens" for group, value in verdict.deviations.items()
    ]
    if verdict.fields:
        lines.append("Wrong answers:")
    lines += [f"  {line}" for line in verdict.fields[:8]]
    if len(verdict.fields) > 8:
        lines.append(f"  and {len(verdict.fields) - 8} more")
    sparse = {True: "on", False: "off: attention is dense", None: "the answers do not tell"}[verdict.sparse]
    lines.append(f"Sparse attention (DSA): {sparse}")
    same = {True: "yes", False: "no (not batch-invariant, which is allowed)", None: "not known"}[repeats]
    lines.append(f"Two equal greedy requests at the same time get equal answers and log-probabilities: {same}")
    return [*lines, *(f"Note: {line}" for line in verdict.missing)]
