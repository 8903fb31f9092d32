"""Formats of tables as people paste them: Markdown, CSV, JSON, YAML, ini, bullets, one line …"""

from ..phrases import capital
from ..splits import pick
from .drawn import Shown, Table
from .rows import every_cell, ordered, speaks
from .structured import dotted, json_rows, markup, nested, nested_json


def markdown(rng, table: Table) -> list[Shown]:
    headers, rows = ordered(rng, table)
    if rng.random() < 0.5:
        headers = [capital(h) for h in headers]
    widths = [0] * len(headers)
    if rng.random() < 0.5:
        widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    rule = pick(rng, ["---", "---", "---", ":---", "---:", ":-:", "-----"])
    tight = rng.random() < 0.15

    def line(cells: list[str]) -> str:
        text = ("|" if tight else " | ").join(c.ljust(w) for c, w in zip(cells, widths, strict=True))
        return f"|{text}|" if tight else f"| {text} |"

    rules = ["-" * max(w, 3) if w else rule for w in widths]
    return [(line(headers), []), ("|" + "|".join(rules) + "|" if rng.random() < 0.6 else "| " + " | ".join(rules) + " |", []),
            *((line(cells), every_cell(table, i)) for i, cells in enumerate(rows))]  # fmt: skip


def separated(rng, table: Table) -> list[Shown]:
    """CSV and its kin; without a header now and then where values explain themselves."""
    headers, rows = ordered(rng, table)
    join = pick(rng, [",", ",", ", ", ";", "\t", " | ", " | ", "|", " / ", " - ", "  "])
    if "," in join:
        rows = [[cell.replace(", ", " ") for cell in cells] for cells in rows]
    lines: list[Shown] = [(join.join(cells), every_cell(table, i)) for i, cells in enumerate(rows)]
    return lines if speaks(table) and rng.random() < 0.3 else [(join.join(headers), []), *lines]


def aligned(rng, table: Table) -> list[Shown]:
    """Columns by spaces, perhaps with rules."""
    headers, rows = ordered(rng, table)
    if rng.random() < 0.3:
        headers = [h.upper() for h in headers]
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    gap = pick(rng, ["  ", "   ", " | ", "  "])
    right = rng.random() < 0.15

    def line(cells: list[str]) -> str:
        return gap.join(c.rjust(w) if right else c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()

    lines: list[Shown] = [] if speaks(table) and rng.random() < 0.2 else [(line(headers), [])]
    if lines and rng.random() < 0.4:
        lines.append(("-" * len(line(headers)) if rng.random() < 0.5 else gap.join("-" * w for w in widths), []))
    lines += [(line(cells), every_cell(table, i)) for i, cells in enumerate(rows)]
    if rng.random() < 0.2:
        rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
        boxed = [
            (f"| {' | '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))} |", every_cell(table, i))
            for i, cells in enumerate(rows)
        ]
        top = f"| {' | '.join(h.ljust(w) for h, w in zip(headers, widths, strict=True))} |"
        return [(rule, []), (top, []), (rule, []), *boxed, (rule, [])]
    return lines


def transposed(rng, table: Table) -> list[Shown]:
    """A line for each column."""
    join = pick(rng, [" | ", ",", "\t", ";", " | "])
    edge = join == " | " and rng.random() < 0.6

    def line(cells: list[str]) -> str:
        text = join.join(cells)
        return f"| {text} |" if edge else text

    clean = [[c.replace(",", "") if join == "," else c for c in cells] for cells in table.cells]
    lines: list[Shown] = [(line([pick(rng, ["", table.head]), *table.rows]), [])]
    if edge:
        lines.append(("|" + "---|" * (len(table.rows) + 1), []))
    for c, header in enumerate(table.headers):
        lines.append((line([header, *(row[c] for row in clean)]), [(r, c) for r in range(len(table.rows))]))
    return lines


def bullets(rng, table: Table) -> list[Shown]:
    """ "- Anna: room 204, phone 12", "Anna (204)", "Anna ... 204": a line a row, with the columns' names or without."""
    bullet = pick(rng, ["", "", "- ", "* ", "• ", "{n}. ", "{n}) "])
    form = pick(
        rng,
        [
            "{e}: {c}",
            "{e}: {c}",
            "{e} - {c}",
            "{e} ({c})",
            "{e}, {c}",
            "{e} -> {c}",
            "{e} = {c}",
            "{e} {c}",
            "{e} | {c}",
            "{e} .... {c}",
            "{e}\t{c}",
        ],
    )
    label = (
        pick(rng, ["{h} {v}", "{h} {v}", "{h}: {v}", "{h}={v}", "{v}", "{v}", "{v} ({h})", "{h} = {v}"])
        if len(table.columns) > 1
        else pick(rng, ["{v}", "{v}", "{v}", "{h} {v}"])
    )
    if "{h}" not in label and not speaks(table):
        label = "{h} {v}"
    if form == "{e} {c}" and label == "{v}" and not any(v[0].isdigit() for v in (row[0] for row in table.cells)):
        form = "{e}: {c}"
    if form == "{e} ({c})" and "(" in label:
        label = "{v}"
    join = pick(rng, [", ", ", ", "; ", " | ", " - ", " / "])
    lines = []
    for r, name in enumerate(table.rows):
        text = join.join(label.format(h=h, v=v) for h, v in zip(table.headers, table.cells[r], strict=True))
        lines.append((bullet.format(n=r + 1) + form.format(e=name, c=text), every_cell(table, r)))
    return lines


def value_first(rng, table: Table) -> list[Shown]:
    """ "204 Anna", "14:30 - dentist": the first column before the row's name."""
    form = pick(
        rng,
        [
            "{v} {e}",
            "{v}: {e}",
            "{v} - {e}",
            "{v} | {e}",
            "{v}  {e}",
            "{v}, {e}",
            "{v} = {e}",
            "{v} x {e}",
            "{v} -> {e}",
        ],
    )
    bullet = pick(rng, ["", "", "- ", "* "])
    if not speaks(table):
        return markdown(rng, table)
    if not all(row[0][0].isdigit() for row in table.cells) and form[3] == " " and form[4:5] in "{ ":
        form = "{v}: {e}"
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        rest = "".join(f"{pick(rng, [', ', ', '])}{v}" for v in table.cells[r][1:])
        lines.append((bullet + form.format(v=table.cells[r][0], e=name) + rest, every_cell(table, r)))
    return lines


def inline(rng, table: Table) -> list[Shown]:
    """All rows in one line: "Prices: apples 2 euros, pears 3 euros"."""
    single = pick(
        rng, ["{e} {v}", "{e}: {v}", "{e} ({v})", "{e} = {v}", "{e} - {v}", "{v} {e}", "{e} is {v}", "{e} at {v}"]
    )
    join = pick(rng, [", ", ", ", "; ", " / ", " | ", " · "])
    if not all(row[0][:1].isdigit() for row in table.cells):
        single = pick(rng, ["{e}: {v}", "{e} ({v})", "{e} = {v}", "{e} - {v}"])
    rows = min(len(table.rows), 5)
    text = join.join(single.format(e=table.rows[r], v=table.cells[r][0]) for r in range(rows))
    lead = pick(rng, ["{h}: ", "{h} - ", "", "the {h}s: ", "{H}: ", "{H}s: "]).format(
        h=table.headers[0], H=capital(table.headers[0])
    )
    return [(lead + text, [(r, 0) for r in range(rows)])]


FORMATS = (
    markdown, markdown, markdown, separated, separated, separated, aligned, aligned, transposed, bullets, bullets, bullets, bullets,
    value_first, value_first, inline, inline, json_rows, json_rows, nested, nested, nested_json, dotted, markup,
)  # fmt: skip
