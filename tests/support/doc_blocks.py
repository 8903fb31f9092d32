"""The blocks of code of a document."""

import re
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of that language, in order."""
    return [block for named, block in BLOCK.findall(page.read_text(encoding="utf-8")) if named == language]
