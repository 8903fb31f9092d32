"""Small random models, written and loaded once; and what cases saw, for scripts/conformance_table.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.small_model import load, text, write_small
from deepseek_v32.inference import LLM
from deepseek_v32.inference.trace import Trace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow cases first, so that no process works by itself at the end."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The small checkpoint as a precision stores it."""
    written: dict[str, Path] = {}

    def find(precision: str) -> Path:
        if precision not in written:
            written[precision] = write_small(tmp_path_factory.mktemp(precision), precision)
        return written[precision]

    return find


@pytest.fixture(scope="session")
def right(checkpoint: Callable[[str], Path]) -> Callable[[str], tuple[LLM, Trace]]:
    """A precision's engine, and its trace of `text()`."""
    made: dict[str, tuple[LLM, Trace]] = {}

    def find(precision: str) -> tuple[LLM, Trace]:
        if precision not in made:
            llm = load(checkpoint(precision), precision)
            made[precision] = llm, llm.trace(text())
        return made[precision]

    return find


@pytest.fixture
def evidence(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """evidence(row, case, …): a case of a row of the table, and what was seen, as JSON values. Called before the asserts."""

    def keep(row: str, case: str, **seen: Any) -> None:
        record_property("conformance", {"row": row, "case": case} | seen)

    return keep
