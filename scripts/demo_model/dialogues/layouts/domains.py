"""What tables list: a kind of row, the columns that it can have, and what people ask about each of them.

    # name | kind of row | its headers | how a question names a row | noun of a row | titles
    name: headers | kind of value | questions | reverse questions

Kinds of values: a type of `values`, "#low-high" for whole numbers, "=a/b/c" for a choice, "$" for amounts, "@" for times of day.
{e} is the row's name, {E} the same as a question names it, {v} a value of the column. Questions by the headers are added.
"""

from dataclasses import dataclass

from .. import texts


@dataclass(frozen=True)
class Column:
    name: str
    headers: tuple[str, ...]
    kind: str
    asks: tuple[str, ...]
    reverse: tuple[str, ...]


@dataclass(frozen=True)
class Domain:
    name: str
    kind: str
    headers: tuple[str, ...]
    naming: str
    noun: str
    titles: tuple[str, ...]
    columns: tuple[Column, ...]


def _fields(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _parse(text: str) -> tuple[Domain, ...]:
    domains = []
    for block in text.strip().removeprefix("# ").split("\n# "):
        head, *lines = block.splitlines()
        name, kind, headers, naming, noun, titles = (part.strip() for part in head.split("|"))
        columns = []
        for line in lines:
            label, rest = line.split(":", 1)
            labels, value_kind, asks, reverse = (part.strip() for part in rest.split(" |"))
            columns.append(Column(label, _fields(labels, ","), value_kind, _fields(asks, ";"), _fields(reverse, ";")))
        domains.append(Domain(name, kind, _fields(headers, ","), naming, noun, _fields(titles, ";"), tuple(columns)))
    return tuple(domains)


DOMAINS = _parse(texts.read("domains"))
