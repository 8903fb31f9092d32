"""The parts of docs/conformance.md that are made from golden files and from the cases of tests."""

import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepseek_v32.inference.conformance.golden import TEN_TIMES, Golden, load
from deepseek_v32.inference.conformance.references import REFERENCES

from .bugs import BUGS
from .bugs.bug import Bug

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
NAMES = ("demo", "wide")
IN_A_TRACE = {"trace", "scenario"}
Line = dict[str, Any]  # of a case: its row, name and outcome, and what was seen
Parts = dict[str, str]  # by name, the text of a part of the document


def effects(golden: Golden) -> dict[str, tuple[float, int]]:
    """Each declared bug's largest change, in units of the noise of all right engines, and the number of answers that it changes."""
    known = {bug.name: (golden.times_the_noise(bug), len(bug.fields)) for bug in golden.bugs}
    return known | {name: (times, 0) for name, times in golden.left_out.items()}


def bug_tables() -> Parts:
    """The table of the bugs that count, and what each of them changes."""
    goldens = {name: load(name) for name in NAMES}
    return {"counts": _counts(goldens), "bugs": _bugs({name: effects(golden) for name, golden in goldens.items()})}


def counted(golden: Golden) -> set[str]:
    return {bug.name for bug in golden.bugs if golden.counts(bug)}


def _counts(goldens: Mapping[str, Golden]) -> str:
    declared = {name for name, bug in BUGS.items() if "http" in bug.shows}
    of = {name: counted(golden) for name, golden in goldens.items()}
    neither = sorted(declared - of["demo"] - of["wide"])
    rows = [
        ("declared", len(declared)),
        ("count on the demo", len(of["demo"])),
        ("count on the wide checkpoint (below)", len(of["wide"])),
        ("count on one of the two, so the probe has to name them", len(of["demo"] | of["wide"])),
        ("count on neither", len(neither)),
    ]
    table = _table(["of the bugs that declare HTTP", "number"], [(title, str(number)) for title, number in rows])
    faint = sorted({bug.name for bug in goldens["demo"].bugs} - of["demo"])
    return "\n\n".join(
        [
            table,
            _paragraph(f"Those that count on neither: {_list(neither)}."),
            _paragraph(
                f"The demo's golden files have {len(goldens['demo'].bugs)} bugs and the wide checkpoint's "
                f"{len(goldens['wide'].bugs)}, because a bug is kept if it changes something by five times the noise of engines "
                "that round as the server does. On a server in fp8 the demo's bugs that do not count may be lost in the noise: "
                f"{_list(faint)}."
            ),
        ]
    )


def _bugs(of: Mapping[str, Mapping[str, tuple[float, int]]]) -> str:
    rows = []
    for name, bug in sorted(BUGS.items()):
        shown = [_effect(bug, of[checkpoint].get(name)) for checkpoint in NAMES]
        rows.append((name, ", ".join(sorted(bug.shows)), _precisions(bug), *shown, REFERENCES.get(name, "none found")))
    return _table(["bug", "shows in", "precisions", "demo", "wide", "public thread"], rows)


def _effect(bug: Bug, effect: tuple[float, int] | None) -> str:
    if "http" not in bug.shows or effect is None:
        return ""
    times, answers = effect
    other = f", {answers} answer{'s' if answers > 1 else ''}" if answers else ""
    return f"{times:.0f}{other}" if times > TEN_TIMES or answers else f"({times:.1f})"


def _precisions(bug: Bug) -> str:
    return "all" if len(bug.precisions) == 3 else ", ".join(sorted(bug.precisions))


def cost(seconds: float, processes: int, peak: int) -> Parts:
    """The cost of making the golden files."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    spent = f"{seconds / 60:.0f} minutes with {processes} processes of at most {peak / 1e9:.1f} GB each"
    return {"cost": f"The last time ({date}), that took {spent}."}


ROWS = {
    "trace": "bugs in a trace of one pass, by bug and precision",
    "scenario": "bugs in a trace of chunks, a reused prefix or preemption",
    "HTTP, demo": "servers of the demo with a bug that counts on it",
    "HTTP, wide": "servers of the wide checkpoint with a bug that counts only on it",
    "HTTP, transformers": "servers of the demo by transformers, with a bug in its own code",
    "HTTP, dense": "servers of the demo without sparse attention, in three precisions: sparse attention is told to be off",
    "HTTP, counts on neither": "servers of the demo with a bug that counts on neither: none is given another's name",
    "HTTP, replayed": "answers of a bug that counts, replayed with noise on top, on both checkpoints",
    "right, trace": "right traces: chunks, reuse, preemption, speculation, other precisions",
    "right, replayed": "answers of right engines, replayed",
    "right, HTTP": "right servers",
}
# Rows by where a bug shows.
NAMING = {
    "scenario": ("trace", "scenario"),
    "http": ("HTTP, demo", "HTTP, wide", "HTTP, counts on neither"),
}


def cases_table(cases: Sequence[Line], machines: Sequence[Line]) -> Parts:
    """One line a row: cases, how many passed, and what stands out; and what they ran on."""
    rows = _in_all(cases)
    for row, title in ROWS.items():
        own = [case for case in cases if case["row"] == row]
        if not own:
            continue
        passed = sum(case["outcome"] == "passed" for case in own)
        rows.append((title, str(len(own)), str(passed), _detail(own)))
    table = _table(["cases", "number", "as demanded", "in detail"], rows)
    return {"cases": f"{table}\n\n{_paragraph(f'Run on {_list(sorted({_machine(each) for each in machines}))}.')}"}


def _in_all(cases: Sequence[Line]) -> list[tuple[str, str, str, str]]:
    """The kit's result: named bugs, of all declared ones, and false alarms. A bug counts as named if all of its cases name it."""
    rows = []
    for title, shows, lowest in (
        ("**bugs that declare a trace, named at the right stage**", IN_A_TRACE, "at least all but one"),
        ("**bugs that declare HTTP, named by the probe of a running server**", {"http"}, "at least 90 %"),
    ):
        own = [case for case in cases if case["row"] in NAMING[min(shows)]]
        missed = {case["bug"] for case in own if case["bug"] not in case["named"] or case["outcome"] != "passed"}
        declared = {name for name, bug in BUGS.items() if bug.shows & shows}
        named = declared & {case["bug"] for case in own} - missed
        rest = f"; not {_list(sorted(declared - named))}" if declared - named else ""
        rows.append((title, str(len(declared)), str(len(named)), f"{lowest} were demanded{rest}"))
    right = [case for case in cases if case["row"].startswith("right")]
    passed = sum(case["outcome"] == "passed" for case in right)
    alarms = len(right) - passed
    rows.append(("**right implementations, called right**", str(len(right)), str(passed), f"{alarms} false alarms"))
    return rows


def _machine(about: Line) -> str:
    return f"{about['gpu'] or 'a CPU'} with torch {about['torch']} and transformers {about['transformers']} ({about['date']})"


def _detail(own: Sequence[Line]) -> str:
    details = []
    if bugs := {case["bug"] for case in own if "bug" in case}:
        named = {case["bug"] for case in own if case.get("bug") in case.get("named", ())}
        alone = {case["bug"] for case in own if case.get("named") == [case.get("bug")]}
        details.append(f"{len(bugs)} bugs, {len(named)} named, {len(alone)} as the only one")
    elif deviations := [case["largest_deviation"] for case in own if "largest_deviation" in case]:
        details.append(f"largest deviation {max(deviations):.2f}")
    if failed := [case["case"] for case in own if case["outcome"] != "passed"]:
        details.append(f"not {'; '.join(failed)}")
    return "; ".join(details)


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 132, break_long_words=False, break_on_hyphens=False)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def put(document: Path, parts: Parts) -> None:
    """Replace what stands between `<!-- name: … -->` and `<!-- end of name -->`. ValueError if a part is not there."""
    content = document.read_text(encoding="utf-8")
    for name, text in parts.items():
        before, _, after = split(content, name)
        content = f"{before}{text}{after}"
    document.write_text(content, encoding="utf-8")


def split(content: str, name: str) -> tuple[str, str, str]:
    """A document's text before a part, in it, and after it."""
    before, begin, rest = content.partition(f"<!-- {name}:")
    comment, close, body = rest.partition("-->\n")
    text, end, after = body.partition(f"\n<!-- end of {name} -->")
    if not (begin and close and end):
        raise ValueError(f"the document has no part {name!r}; expected <!-- {name}: … --> and <!-- end of {name} -->")
    return f"{before}{begin}{comment}{close}", text, f"{end}{after}"
