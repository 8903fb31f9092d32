"""scripts/check_determinism.py: processes that share the seeds, results that outlive a process, and their totals."""

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import check_determinism  # type: ignore[import-not-found]
import pytest


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the cases that run; each has two requests, and in case 7 one of them differs."""
    ran: list[int] = []

    def run_case(model: object, seed: int, group: int, longest: int) -> tuple[Counter[str], list[dict[str, Any]]]:
        ran.append(seed)
        return Counter(requests=2, rows=5, preempted=seed % 2), [{"seed": seed}] * (seed == 7)

    monkeypatch.setattr(check_determinism, "run_case", run_case)
    monkeypatch.setattr(check_determinism, "_load", lambda arguments: SimpleNamespace())
    return ran


def status(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["check_determinism.py", *map(str, arguments)])
    result: int = check_determinism.main()
    return result


def test_a_process_takes_its_share_of_the_seeds_and_resumes(
    seeds: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    assert status(monkeypatch, "--first", 4, "--stride", 2, "--requests", 4, "--results", one) == 0
    assert seeds == [4, 6]
    with one.open("a") as file:
        file.write('\n{"seed": 8, "found"')  # the process was ended while it wrote
    assert status(monkeypatch, "--first", 4, "--stride", 2, "--requests", 2, "--results", one) == 0
    assert status(monkeypatch, "--first", 5, "--stride", 2, "--requests", 4, "--results", other) == 1
    assert status(monkeypatch, "--first", 5, "--stride", 2, "--requests", 2, "--results", other) == 0
    assert seeds == [4, 6, 8, 5, 7, 9]
    capsys.readouterr()
    assert status(monkeypatch, "--add-up", one, other, other) == 1
    expected = {"requests": 12, "rows": 30, "preempted": 3, "requests that differ": 1}
    assert json.loads(capsys.readouterr().out) == expected
    assert status(monkeypatch, "--add-up", one) == 0


def test_results_of_a_mutant_are_not_kept(seeds: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        status(monkeypatch, "--mutant", "all", "--results", tmp_path / "1.jsonl")
    assert not seeds
