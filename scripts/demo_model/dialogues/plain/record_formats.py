"""Formats of pasted tables: separated values, Markdown, JSON lines, pairs, aligned columns."""

import json

from ..splits import pick


def plain(cell: str) -> str | int:
    """A number as JSON has it."""
    return int(cell) if cell.isdigit() and str(int(cell)) == cell else cell


def written(rng, names: list[str], rows: list[list[str]]) -> tuple[list[str], int]:
    """The rows in a format that people paste, and the number of lines before the first."""
    style = rng.random()
    if style < 0.3:
        mark = pick(rng, [",", ", ", ";", "\t", ","])
        return [mark.join(row) for row in (names, *rows)], 1
    if style < 0.55:
        rule = "|" + "|".join(["---"] * len(names)) + "|"
        return ["| " + " | ".join(names) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)], 2
    if style < 0.7:
        return [json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False) for row in rows], 0
    if style < 0.85:
        return [", ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True)) for row in rows], 0
    widths = [max(len(row[n]) for row in (names, *rows)) + 2 for n in range(len(names))]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (names, *rows)
    ], 1
