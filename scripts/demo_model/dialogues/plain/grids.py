"""Tables whose rows have two keys, and the formats that people paste them in: texts/lookups.txt.

A block: titles | key | second key | columns, each `noun header: values`, with "! greatest/least" for numbers; then, for each column,
questions with {a} and {b}, the row's keys. Kinds of values are those of layouts/domains.
"""

import json
import re
from dataclasses import dataclass

from .. import texts
from ..layouts.kinds import cell
from ..splits import pick


@dataclass(frozen=True)
class _Column:
    noun: str
    header: str
    kind: str
    extremes: tuple[str, ...]
    asks: tuple[str, ...]


@dataclass(frozen=True)
class _Domain:
    titles: tuple[str, ...]
    columns: tuple[_Column, ...]  # the first two are the keys


def _parse() -> list[_Domain]:
    domains = []
    for block in re.split(r"\n(?=\S)", texts.read("lookups").strip()):
        head, *lines = block.splitlines()
        titles, *columns = (part.strip() for part in head.split(" | "))
        asks = dict(line.strip().split("? ", 1) for line in lines)
        found = []
        for column in columns:
            named, values = column.split(": ", 1)
            noun, header = named.split(" ", 1)
            kind, _, extremes = (part.strip() for part in values.partition(" ! "))
            forms = tuple(form.strip() for form in asks.get(noun, "").split("|") if form.strip())
            found.append(_Column(noun, header, kind, tuple(extremes.split("/")) if extremes else (), forms))
        domains.append(_Domain(tuple(title.strip() for title in titles.split(";")), tuple(found)))
    return domains


DOMAINS = _parse()


def entry(rng, split: str, kind: str, style: float) -> str:
    return pick(rng, kind.split("/")) if "/" in kind else cell(rng, split, kind, style)


@dataclass
class Table:
    title: str
    columns: list[_Column]
    rows: list[list[str]]


def draw(rng, split: str) -> Table:
    """A table of two to eight rows; no two rows have both keys in common."""
    domain = pick(rng, DOMAINS)
    columns = [*domain.columns[:2], *rng.sample(domain.columns[2:], 1 + int(rng.random() * (len(domain.columns) - 2)))]
    styles = [rng.random() for _ in columns]
    rows: list[list[str]] = []
    for _ in range(40):
        row = [entry(rng, split, column.kind, style) for column, style in zip(columns, styles, strict=True)]
        if rows and rng.random() < 0.4:  # shares a key with another row
            at = int(rng.random() * 2)
            row[at] = pick(rng, rows)[at]
        if row[0] != row[1] and all(row[:2] != other[:2] and row[1::-1] != other[:2] for other in rows):
            rows.append(row)
        if (len(rows) > 1 and rng.random() < 0.2) or len(rows) == 8:
            break
    return Table(pick(rng, domain.titles), columns, rows)


def lines(rng, table: Table) -> tuple[list[str], int]:
    """The table as text, and the number of lines before its first row."""
    headers = [column.header for column in table.columns]
    style = rng.random()
    if style < 0.25:
        rule = "|" + "|".join(["---"] * len(headers)) + "|"
        return ["| " + " | ".join(row) + " |" for row in [headers]] + [rule] + [
            "| " + " | ".join(row) + " |" for row in table.rows
        ], 2
    if style < 0.55:
        mark = pick(rng, [",", ",", ";", "\t", ", "])
        return [mark.join(row) for row in [headers, *table.rows]], 1
    if style < 0.7:
        return [json.dumps(dict(zip(headers, row, strict=True)), ensure_ascii=False) for row in table.rows], 0
    if style < 0.8:
        inner = [json.dumps(dict(zip(headers, row, strict=True)), ensure_ascii=False) + "," for row in table.rows]
        return ["[", *inner[:-1], inner[-1][:-1], "]"], 1
    if style < 0.9:
        widths = [max(len(row[n]) for row in [headers, *table.rows]) + 2 for n in range(len(headers))]
        return [
            "".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in [headers, *table.rows]
        ], 1
    return [", ".join(f"{header}: {text}" for header, text in zip(headers, row, strict=True)) for row in table.rows], 0


def number(text: str) -> float | None:
    """An amount or a count; None if there is none, or several."""
    found = re.findall(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if len(found) == 1 else None
