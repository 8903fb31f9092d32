"""Small random models, written and loaded once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.small_model import load, text, write_small
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.trace_file import Trace


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
