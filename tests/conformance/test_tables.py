"""The numbers of docs/conformance.md: parts of a document, cases that tests record, and the processes that answer."""

import json
import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from conformance_table import Lines, read

from deepseek_v32.inference.conformance.golden import load
from golden.processes import CALLS, Processes
from golden.tables import bug_tables, cases_table, effects, put, split
from support.in_processes import end_at_three, pid_of

DOCUMENT = """before
<!-- one: made by a script -->
old
<!-- end of one -->
between
<!-- two: made by a script -->
kept
<!-- end of two -->
"""


def report(outcome: Any, *seen: dict[str, Any], when: Any = "call") -> pytest.TestReport:
    properties = [("conformance", each) for each in seen]
    return pytest.TestReport("test.py::test", ("", 0, ""), {}, outcome, None, when, user_properties=properties)


def test_a_part_of_a_document_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "document.md"
    file.write_text(DOCUMENT)
    put(file, {"one": "new\nlines"})
    assert file.read_text() == DOCUMENT.replace("old", "new\nlines")
    assert split(file.read_text(), "two")[1] == "kept"
    with pytest.raises(ValueError, match="the document has no part 'three'; expected <!-- three: … -->"):
        put(file, {"three": ""})


def test_cases_are_written_as_they_end_and_the_last_of_each_counts(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps({"machine": {"gpu": None, "torch": "1", "transformers": "2", "date": "today"}}) + "\n")
    lines = Lines(file)
    bug = {"row": "trace", "case": "a bug, exact", "bug": "a bug"}
    lines.pytest_runtest_logreport(report("failed", bug | {"named": []}))
    lines.pytest_runtest_logreport(report("passed", bug | {"named": ["a bug"]}))
    lines.pytest_runtest_logreport(report("passed", when="teardown"))
    server = {"row": "right, HTTP", "case": "a server", "largest_deviation": 1.25}
    lines.pytest_runtest_logreport(report("passed", server, server | {"case": "another", "largest_deviation": 0.5}))
    lines.pytest_runtest_logreport(report("failed", when="setup"))
    cases, machines = read([file])
    assert len(cases) == 3 and len(file.read_text().splitlines()) == 6
    text = cases_table(cases, machines)["cases"]
    assert "| bugs in a trace of one pass, by bug and precision | 1 | 1 | 1 bugs, 1 named, 1 as the only one |" in text
    assert "| right servers | 2 | 2 | largest deviation 1.25 |" in text
    assert "| **right implementations, called right** | 2 | 2 | 0 false alarms |" in text
    assert "Run on a CPU with torch 1 and transformers 2 (today)." in text


def test_a_case_that_failed_is_in_the_table(tmp_path: Path) -> None:
    case = {"row": "HTTP, demo", "case": "a bug, bf16", "bug": "a bug", "named": ["another"], "outcome": "failed"}
    assert "| 1 | 0 | 1 bugs, 0 named, 0 as the only one; not a bug, bf16 |" in cases_table([case], [])["cases"]


def test_a_bug_is_named_if_all_of_its_cases_name_it() -> None:
    def case(row: str, bug: str, named: str, outcome: str = "passed") -> dict[str, Any]:
        return {"row": row, "case": f"{row} {bug} {named}", "bug": bug, "named": [named], "outcome": outcome}

    cases = [
        case("HTTP, demo", "yarn-missing", "yarn-missing"),
        case("HTTP, demo", "relu-missing", "relu-missing"),
        case("HTTP, wide", "relu-missing", "key-norm-rms", "failed"),
        case("trace", "relu-missing", "relu-missing"),
    ]
    text = cases_table(cases, [])["cases"]
    http, trace = (next(line for line in text.splitlines() if f"declare {where}" in line) for where in ("HTTP", "a tr"))
    assert "| 1 | at least 90 %" in http and "relu-missing" in http and "yarn-missing" not in http
    assert "| 1 | at least all but one" in trace and "relu-missing" not in trace and "yarn-missing" in trace


def test_every_declared_bug_has_its_effect_in_the_table() -> None:
    text = bug_tables()["bugs"]
    times, answers = effects(load("demo"))["window-attention"]
    assert f"| window-attention | http, trace | all | {times:.0f}, {answers} answers |" in text
    assert "| mscale-on-rope | trace | all |  |  | kekzl/imp#880 |" in text


@pytest.mark.heavy
def test_each_is_asked_once_by_processes_that_end(capsys: pytest.CaptureFixture[str]) -> None:
    pool = Processes(2)
    said = pool.ask("pids", pid_of, range(2 * CALLS + 1))
    assert list(said) == list(range(2 * CALLS + 1)) and os.getpid() not in said.values()
    assert len(set(said.values())) >= 3 and max(map(list(said.values()).count, said.values())) <= CALLS
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"pids: {len(said)} of {len(said)} done in ") and pool.peak > 1 << 26


@pytest.mark.heavy
def test_a_process_that_is_killed_is_an_error() -> None:
    with pytest.raises(BrokenProcessPool):
        Processes(1).ask("killed", end_at_three, range(5))
