"""Errors about inputs: one line that names what is wrong, its value and what is expected."""

from pathlib import Path
from typing import Any


def short_repr(value: Any, limit: int = 80) -> str:
    """Return repr(value) without its middle beyond `limit` characters: values come from untrusted files."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


class ConfigError(ValueError):
    """A configuration that this program cannot run."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded. The message begins with the file."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{short_repr(str(file), 300)}: {problem}")


def refuse(error: CheckpointError) -> None:
    """Raise the error. Loading stops so at the first problem; a report of all problems passes another function instead."""
    raise error
