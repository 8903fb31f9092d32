"""The word lists and sentence frames of the generator, as text files; the module that reads one says what its lines mean."""

from pathlib import Path


def read(name: str) -> str:
    """The text of `name`.txt."""
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
