"""Formats with a syntax of their own: JSON, YAML, ini and markup."""

import json
import re

from ..phrases import capital
from ..splits import pick
from .drawn import Shown, Table
from .rows import every_cell


def _typed(rng, value: str):
    return int(value) if value.isdigit() and str(int(value)) == value and rng.random() < 0.6 else value


def json_rows(rng, table: Table) -> list[Shown]:
    """Objects, one a line: JSON lines, an array, or an object of objects."""
    headers = [_key(rng, h) for h in table.headers]
    head, style = _key(rng, table.head), rng.random()
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        record = {h: _typed(rng, v) for h, v in zip(headers, table.cells[r], strict=True)}
        text = json.dumps({head: name, **record} if style < 0.7 else record, ensure_ascii=False)
        if style >= 0.7:
            text = f"  {json.dumps(name, ensure_ascii=False)}: {text}"
        last = r == len(table.rows) - 1
        lines.append(
            (
                text
                if style < 0.4
                else f"{text}{'' if last else ','}"
                if style >= 0.7
                else f"  {text}{'' if last else ','}",
                every_cell(table, r),
            )
        )
    if style < 0.4:
        return lines
    return [("[" if style < 0.7 else "{", []), *lines, ("]" if style < 0.7 else "}", [])]


def _key(rng, header: str) -> str:
    return re.sub(r"[ -]", "_", header.strip(".")) if rng.random() < 0.7 else header


def nested(rng, table: Table) -> list[Shown]:
    """A block for each row: YAML, ini, or "Name: Anna" and its fields."""
    style, lines = rng.random(), []
    keys = [_key(rng, h) for h in table.headers]
    for r, name in enumerate(table.rows[:5]):
        if style < 0.3:
            lines.append((f"{name}:", []))
            form = "  {k}: {v}"
        elif style < 0.5:
            lines.append((f"- {table.head}: {name}", []))
            form = "  {k}: {v}"
        elif style < 0.7:
            lines.append((f"[{name}]", []))
            form = pick(rng, ["{k} = {v}", "{k}={v}"])
        elif style < 0.8:
            lines.append((f"## {name}", []))
            form = "- {k}: {v}"
        else:
            if r:
                lines.append(("", []))
            lines.append((f"{capital(table.head)}: {name}", []))
            form = "{K}: {v}"
        for c, key in enumerate(keys):
            lines.append((form.format(k=key, K=capital(key), v=table.cells[r][c]), [(r, c)]))
    return lines


def nested_json(rng, table: Table) -> list[Shown]:
    keys = [_key(rng, h) for h in table.headers]
    lines: list[Shown] = [("{", [])]
    rows = min(len(table.rows), 4)
    for r in range(rows):
        lines.append((f"  {json.dumps(table.rows[r], ensure_ascii=False)}: {{", []))
        for c, key in enumerate(keys):
            comma = "" if c == len(keys) - 1 else ","
            lines.append(
                (f'    "{key}": {json.dumps(_typed(rng, table.cells[r][c]), ensure_ascii=False)}{comma}', [(r, c)])
            )
        lines.append(("  }" if r == rows - 1 else "  },", []))
    return [*lines, ("}", [])]


def dotted(rng, table: Table) -> list[Shown]:
    """ "redis.port=6379", "redis_port: 6379"."""
    join = pick(rng, [".", "_", "/", " ", ".", ": "])
    equals = pick(rng, ["=", " = ", ": "]) if join != ": " else " = "
    return [
        (f"{name}{join}{header}{equals}{table.cells[r][c]}", [(r, c)])
        for r, name in enumerate(table.rows) for c, header in enumerate(table.headers)
    ]  # fmt: skip


def markup(rng, table: Table) -> list[Shown]:
    """XML, HTML rows, or named tuples."""
    tag, style, plain = table.domain.noun if table.domain.noun != "who" else "person", rng.random(), rng.random() < 0.5
    lines: list[Shown] = []
    for r, name in enumerate(table.rows):
        pairs = [
            (_key(rng, table.head), name),
            *zip([_key(rng, h) for h in table.headers], table.cells[r], strict=True),
        ]
        if style < 0.4:
            text = f"<{tag} " + " ".join(f'{k}="{v}"' for k, v in pairs) + "/>"
        elif style < 0.7:
            text = "<tr>" + "".join(f"<td>{v}</td>" for _, v in pairs) + "</tr>"
        else:
            text = (
                " ".join(f"{k}={v}" for k, v in pairs)
                if plain
                else f"{tag}(" + ", ".join(f"{k}={v!r}" for k, v in pairs) + ")"
            )
        lines.append((text, every_cell(table, r)))
    if 0.4 <= style < 0.7:
        head = "<tr>" + "".join(f"<th>{h}</th>" for h in [table.head, *table.headers]) + "</tr>"
        return [("<table>", []), (head, []), *lines, ("</table>", [])]
    return lines
