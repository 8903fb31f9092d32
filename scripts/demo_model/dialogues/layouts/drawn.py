"""Tables of a domain with rows, columns and cells, before they are written in any format."""

from dataclasses import dataclass

from ..clauses import Grammar
from ..lexicon import DAYS
from ..phrases import Question
from ..splits import pick
from .domains import DOMAINS, Column, Domain
from .kinds import cell

# One line and the questions that it answers.
Line = tuple[str, list[Question]]


# A line and the cells, (row, column), that it shows.
Shown = tuple[str, list[tuple[int, int]]]


@dataclass
class Table:
    domain: Domain
    columns: list[Column]
    head: str  # of the rows' names
    headers: list[str]
    rows: list[str]
    cells: list[list[str]]


def draw_table(grammar: Grammar, most: int = 8) -> Table:
    """A table of any domain with one to four columns and up to `most` rows."""
    rng, split = grammar.rng, grammar.split
    domain = pick(rng, DOMAINS)
    columns: list[Column] = []
    for _ in range(1 + int(rng.random() * 3.6)):
        column = pick(rng, domain.columns)
        if column not in columns:
            columns.append(column)
    if domain.kind == "day":
        rows = _days(rng)[: 2 + int(rng.random() * most)]
    else:
        rows = []
        for _ in range(2 + int(rng.random() ** 1.5 * most)):
            name = cell(rng, split, domain.kind)
            if name not in rows:
                rows.append(name)
    styles = [rng.random() for _ in columns]
    cells = [[cell(rng, split, c.kind, s) for c, s in zip(columns, styles, strict=True)] for _ in rows]
    return Table(domain, columns, pick(rng, domain.headers), [pick(rng, c.headers) for c in columns], rows, cells)


def _days(rng) -> list[str]:
    """Days in order, perhaps shortened."""
    days = [*DAYS]
    start = int(rng.random() * 7) if rng.random() < 0.4 else 0
    days = days[start:] + days[:start]
    if rng.random() < 0.12:
        return [day[:3] for day in days]
    return days
