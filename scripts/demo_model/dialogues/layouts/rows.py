"""Rows of a table with the rows' names in place, for the formats."""

from .drawn import Table


def every_cell(table: Table, row: int) -> list[tuple[int, int]]:
    return [(row, column) for column in range(len(table.columns))]


def ordered(rng, table: Table) -> tuple[list[str], list[list[str]]]:
    """Headers and rows with the rows' names, usually first."""
    at = 0 if rng.random() < 0.82 else int(rng.random() * (len(table.columns) + 1))
    headers = [*table.headers[:at], table.head, *table.headers[at:]]
    rows = [[*cells[:at], name, *cells[at:]] for name, cells in zip(table.rows, table.cells, strict=True)]
    return headers, rows


def speaks(table: Table) -> bool:
    """Whether each value shows by its form which column it is of."""
    kinds = [column.kind[0] if column.kind[0] in "#=$@" else column.kind for column in table.columns]
    return len({table.domain.kind, *kinds}) == len(kinds) + 1
