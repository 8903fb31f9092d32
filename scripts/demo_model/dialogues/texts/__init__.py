"""The generator's words and sentences, as text files.

words.txt has a list a line; frames.txt, manners.txt and functions.txt have sections, "@ name" and a line of forms. Blocks of
matters_*.txt, remarks.txt and near.txt are cases (`cases.py`), those of *_links.txt are links of two facts (`hops.py`).
"""

from pathlib import Path


def read(name: str) -> str:
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").strip()


def listed(text: str, mark: str = ";") -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(mark) if part.strip())


def sections(name: str) -> dict[str, tuple[str, ...]]:
    """The forms of each section, with the spaces at their ends."""
    parts = (part.split("\n", 1) for part in read(name).removeprefix("@ ").split("\n@ "))
    return {
        head: tuple(form for form in forms.strip("\n").replace("\n", "|").split("|") if form) for head, forms in parts
    }


def blocks(name: str) -> list[list[str]]:
    """The lines of each block; an empty line ends one."""
    return [block.strip().splitlines() for block in read(name).split("\n\n") if block.strip()]


def _lists(name: str) -> dict[str, tuple[str, ...]]:
    return {name: listed(rest) for name, rest in (line.split(": ", 1) for line in read(name).splitlines())}


LISTS = _lists("words")
PATTERNS = _lists("patterns")  # of values: {kind}, {list} and {#9}, a number from 1 to 9
