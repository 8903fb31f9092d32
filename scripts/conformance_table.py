"""Run the conformance kit's tests, and make the table of docs/conformance.md from what they saw.

    python scripts/conformance_table.py run cpu.jsonl --processes 2         # every case that needs no GPU
    python scripts/conformance_table.py run gpu.jsonl --gpu --processes 3   # the servers on a GPU
    python scripts/conformance_table.py table cpu.jsonl gpu.jsonl           # --write puts it into the document

`run` writes a JSON line for each case as it ends: its row, its name, whether the test passed, and what was seen. `table` takes the
last line of each case. Exit code 1 if a case failed.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the campaigns and golden answers are tests' own

from golden.tables import DOCUMENT, Line, cases_table, put

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "conformance"


class Lines:
    """A pytest plugin that writes what tests recorded as `conformance`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and not report.failed:
            return
        about = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 1)}
        seen = [value for name, value in report.user_properties if name == "conformance"] or [{}]
        lines = [json.dumps(about | each) for each in seen if isinstance(each, dict)]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))


def machine() -> dict[str, Any]:
    """What the cases run on."""
    import transformers

    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def run(arguments: argparse.Namespace) -> int:
    """Run the tests. Returns pytest's exit code."""
    with arguments.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"machine": machine()}) + "\n")
    wanted = "gpu" if arguments.gpu else "(slow or not slow) and not gpu"
    options = ["-q", "-m", wanted, "-n", str(arguments.processes), "--dist", "load", "--maxschedchunk", "1"]
    began = time.monotonic()
    code = int(
        pytest.main([*options, "-k", arguments.chosen, *map(str, arguments.tests)], plugins=[Lines(arguments.out)])
    )
    print(f"{arguments.out}: exit code {code}, {time.monotonic() - began:.0f} s")
    return code


def read(paths: Iterable[Path]) -> tuple[list[Line], list[Line]]:
    """The last line of each case, and the machines."""
    cases: dict[tuple[str, str], Line] = {}
    machines = []
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "row" in line:
                cases[line["row"], line["case"]] = line
            elif "machine" in line:
                machines.append(line["machine"])
    return list(cases.values()), machines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run the tests")
    running.add_argument("out", type=Path, help="file of JSON lines; new ones are appended")
    running.add_argument("--gpu", action="store_true", help="the cases that need a GPU, in place of all others")
    running.add_argument("--processes", type=int, default=2, help="at a time (default 2)")
    running.add_argument("--tests", type=Path, nargs="+", default=[TESTS], help="files (default: tests/conformance)")
    running.add_argument("-k", dest="chosen", default="", help="those whose names match, as in pytest")
    table = commands.add_parser("table", help="make the table")
    table.add_argument("lines", type=Path, nargs="+", help="files that `run` wrote")
    table.add_argument("--write", action="store_true", help="put it into docs/conformance.md")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments)
    cases, machines = read(arguments.lines)
    parts = cases_table(cases, machines)
    print(parts["cases"])
    if arguments.write:
        put(DOCUMENT, parts)
    return int(any(case["outcome"] != "passed" for case in cases))


if __name__ == "__main__":
    sys.exit(main())
