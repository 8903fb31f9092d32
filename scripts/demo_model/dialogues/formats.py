"""Rows as people paste them: separated or aligned columns, Markdown, JSON, YAML, bullets, one line."""

import json

from .splits import pick
from .values import capital


def plain(cell: str) -> str | int:
    """A number as JSON has it."""
    return int(cell) if cell.isdigit() and str(int(cell)) == cell else cell


def written(rng, headers: list[str], rows: list[list[str]], named: bool = False) -> tuple[list[str], list[list[int]]]:
    """Lines, and the line of each cell, -1 for one that is not shown. named: the first cell of a row is its name."""
    if named and rng.random() < 0.5:
        return pick(rng, (_bullets, _bullets, _bullets, _nested, _nested, _transposed, _inline, _backwards))(rng, headers, rows)  # fmt: skip
    lines, first = _grid(rng, headers, rows, named)
    return lines, [[first + number] * len(headers) for number in range(len(rows))]


def _grid(rng, headers: list[str], rows: list[list[str]], named: bool) -> tuple[list[str], int]:
    """A line a row, and the number of lines before the first."""
    style, widths = rng.random(), [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    if rng.random() < 0.3:
        headers = [pick(rng, (str.upper, capital))(header) for header in headers]
    if style < 0.3:
        mark = pick(rng, [",", ",", ", ", ";", "\t", "\t", *([" | ", "|", " / "] if named else [])])
        return [mark.join(row) for row in (headers, *rows)], 1
    if style < 0.55:
        padded = rng.random() < 0.4
        lines = ["| " + " | ".join(map(str.ljust, row, widths) if padded else row) + " |" for row in (headers, *rows)]
        rule = pick(rng, ("---", "---", ":---", ":-:", "-----"))
        return [lines[0], "|" + "|".join([rule] * len(headers)) + "|", *lines[1:]], 2
    if style < 0.7:
        records = [json.dumps(dict(zip(headers, map(plain, row), strict=True)), ensure_ascii=False) for row in rows]
        return (records, 0) if style < 0.65 else (["[", *(f"{r}," for r in records[:-1]), records[-1], "]"], 1)
    if style < 0.82:
        mark = pick(rng, (": ", ": ", "=", " ")) if named else ": "
        return [", ".join(map(mark.join, zip(headers, row, strict=True))) for row in rows], 0
    gap = pick(rng, ("  ", "  ", "   ", " | "))
    aligned = [gap.join(map(str.ljust, row, widths)).rstrip() for row in (headers, *rows)]
    return ([aligned[0], "-" * len(aligned[0]), *aligned[1:]], 2) if rng.random() < 0.3 else (aligned, 1)


def _bullets(rng, headers: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[int]]]:
    """ "- Anna: room 204, phone 12", with the columns' names if there are several."""
    start, between = (
        pick(rng, ("", "", "- ", "* ", "• ", "{n}. ", "{n}) ")),
        pick(rng, (", ", ", ", "; ", " | ", " / ")),
    )
    form = pick(
        rng,
        (
            "{e}: {c}",
            "{e}: {c}",
            "{e} - {c}",
            "{e} ({c})",
            "{e}, {c}",
            "{e} -> {c}",
            "{e} = {c}",
            "{e} .... {c}",
            "{e}\t{c}",
        ),
    )
    several = len(headers) > 2 and rng.random() < 0.75
    label = pick(rng, ("{h} {v}", "{h}: {v}", "{h}={v}", "{v} {h}") if several else ("{v}", "{v}", "{v}", "{h} {v}"))
    lines = []
    for number, (name, *cells) in enumerate(rows, 1):
        text = between.join(label.format(h=h, v=v) for h, v in zip(headers[1:], cells, strict=True))
        lines.append(start.format(n=number) + form.format(e=name, c=text))
    return lines, [[number] * len(headers) for number in range(len(rows))]


def _nested(rng, headers: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[int]]]:
    """A line a cell, after one with the row's name or with the name in each."""
    head, inner = pick(
        rng,
        (
            ("{e}:", "  {h}: {v}"),
            ("[{e}]", "{h} = {v}"),
            ("# {e}", "- {h}: {v}"),
            ("{k}: {e}", "{h}: {v}"),
            ("- {k}: {e}", "  {h}: {v}"),
            ("{e}", "{h}: {v}"),
            ("", "{e}.{h} = {v}"),
            ("", "{e} {h}: {v}"),
        ),
    )
    lines: list[str] = []
    where = []
    for name, *cells in rows:
        lines += [head.format(e=name, k=headers[0])] if head else []
        where.append([len(lines) - 1, *range(len(lines), len(lines) + len(cells))])
        lines += [inner.format(e=name, h=h, v=v) for h, v in zip(headers[1:], cells, strict=True)]
        lines += [""] if head == "{k}: {e}" else []
    return lines, where


def _transposed(rng, headers: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[int]]]:
    mark = pick(rng, (" | ", ",", "\t", ";", " | "))
    lines = [mark.join((header, *cells)) for header, cells in zip(headers, zip(*rows, strict=True), strict=True)]
    return lines, [list(range(len(headers)))] * len(rows)


def _inline(rng, headers: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[int]]]:
    """All rows in one line: "Prices: apples 2 euros, pears 3 euros"."""
    form, mark = (
        pick(rng, ("{e} {v}", "{e}: {v}", "{e} ({v})", "{e} = {v}", "{e} - {v}", "{e} is {v}")),
        pick(rng, (", ", ", ", "; ", " / ")),
    )
    text = mark.join(form.format(e=row[0], v=row[1]) for row in rows)
    lead = pick(rng, ("{h}: ", "{h}s: ", "", "the {h}s: ", "{h} - ")).format(h=headers[1])
    return [lead + text], [[0, 0, *[-1] * (len(headers) - 2)]] * len(rows)


def _backwards(rng, headers: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[int]]]:
    """ "14:30 - dentist": the first column before the row's name, and the others after it."""
    mark, label = pick(rng, (": ", " - ", " | ", "  ", ", ", " ")), pick(rng, ("{v}", "{h} {v}", "({v})"))
    more = [[label.format(h=h, v=v) for h, v in zip(headers[2:], row[2:], strict=True)] for row in rows]
    lines = [mark.join((row[1], row[0], *cells)) for row, cells in zip(rows, more, strict=True)]
    return lines, [[number] * len(headers) for number in range(len(rows))]
