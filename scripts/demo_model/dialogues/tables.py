"""Tables of many domains and documents about one thing, in any format: what stands in them, and what does not.

texts/tables.txt: @ name | kind of row | its headers | how a question names a row | noun of a row | titles
                  column: headers | kind of value | questions; … | questions by the value; …
texts/forms.txt:  @ name | titles | what {w} stands for, unless there is a field "name"
                  field: labels | kind of value | questions; …
{e} is the row's name, {E} the same as a question names it, {p} its plural, {v} a value.
"""

import json
import re
from dataclasses import dataclass

from .formats import plain, written
from .rows import ASKING, LEADS, Rows, bare_rows, cell, changed, log, lookup, mine, question
from .splits import below, pick
from .texts import LISTS, blocks, listed
from .values import capital, plural
from .writer import Writer

_BY_NAME = "what is the {c} of {k}|{k} {c}|{c} of {k}|what does it say under {c} for {k}|{c} for {k}|what's the {c} for {k}|look up the {c} of {k}|what {c} does {k} have".split("|")  # fmt: skip
_SET = "what is {c} set to|what's the {c}|{c}|what does it say for {c}|which {c} is in the {t}|what is the value of {c}|{c} in the {t}".split("|")  # fmt: skip
_WRITTEN = "what's the {c}|{c}|what does it say for {c}|what is the {c} on it|the {c}|what {c} does it say".split("|")
# A question that any column of its kind would answer.
_VAGUE = re.compile(r"(where|when|who|what|how much|how) (is|are) (the )?\{[eE]\}$")
_DAYS = {day[:3]: day for day in LISTS["days"]}


@dataclass(frozen=True)
class _Field:
    """A column of a table, or a field of a document."""

    name: str
    labels: tuple[str, ...]
    kind: str
    asks: tuple[str, ...]
    reverse: tuple[str, ...] = ()


def _fields(lines: list[str]) -> list[_Field]:
    found = []
    for name, rest in (line.split(": ", 1) for line in lines):
        labels, kind, *asks = (part.strip() for part in rest.split(" | "))
        found.append(_Field(name, listed(labels, ","), kind, *map(listed, asks)))
    return found


def _read(name: str) -> list[tuple[list[str], list[_Field]]]:
    return [
        ([part.strip() for part in lines[0].removeprefix("@ ").split("|")], _fields(lines[1:]))
        for lines in blocks(name)
    ]


_TABLES, _FORMS = _read("tables"), _read("forms")


def _clear(asks, present: list[str]) -> list[str]:
    """The questions that none of the present columns could answer: those begin with another question word."""
    taken = {ask.split()[0] for ask in present} - {"what", "which", "how"}
    return [ask for ask in asks if ask not in present and ask.split()[0] not in taken and not _VAGUE.match(ask)]


def _names(rng, split: str, kind: str) -> list[str]:
    if kind == "day":
        start, count = (below(rng, 7) if rng.random() < 0.4 else 0), 2 + below(rng, 6)
        days = (LISTS["days"] * 2)[start : start + count]
        return [day[:3] for day in days] if rng.random() < 0.3 else list(days)
    found: list[str] = []
    for _ in range(3 + int(rng.random() ** 1.5 * 8)):
        name = cell(rng, split, kind)
        if not any(name.lower() in other.lower() or other.lower() in name.lower() for other in found):
            found.append(name)
    return found


def _table(writer: Writer) -> int:
    rng, split, rows = writer.rng, writer.split, Rows(writer)
    (domain, kind, heads, naming, _, titles), columns = pick(rng, _TABLES)
    shown = rng.sample(columns, min(len(columns), 1 + int(rng.random() * 3.6)))
    names = _names(rng, split, kind)
    *names, absent = names if kind != "day" else [*names, ""]
    keys = [_DAYS.get(name, name) for name in names]
    title, days = pick(rng, listed(titles)), kind == "day"
    if len(names) < 2 or f"table {domain}" in writer.taken or (not days and any(writer.mentions(k.lower()) for k in [*keys, absent])):  # fmt: skip
        return 0
    headers = [pick(rng, listed(heads, ",")), *(pick(rng, column.labels) for column in shown)]
    styles = [rng.random() for _ in shown]
    cells = [[cell(rng, split, c.kind, s) for c, s in zip(shown, styles, strict=True)] for _ in names]
    lines, where = written(rng, headers, [[n, *row] for n, row in zip(names, cells, strict=True)], named=True)

    def asked(forms, key: str) -> list[str]:
        named = naming.format(e=key).replace("the the ", "the ")
        return [form.format(e=key, E=named, p=plural(key)) for form in forms]

    found, missing = [], []
    present = [ask for column in shown for ask in column.asks]
    for at, (column, label) in enumerate(zip(shown, headers[1:], strict=True)):
        forms = [ask for ask in mine(column.asks, rows.wording) if len(shown) == 1 or not _VAGUE.match(ask)]
        label = label if len(label) > 2 and label[0].isalpha() else column.name
        values = [row[at] for row in cells]
        for number, key in enumerate(keys):
            line, text = where[number][at + 1], values[number]
            by = pick(rng, mine(_BY_NAME, rows.wording)).format(c=label.lower(), k=key)
            found.append((line, question(f"record {column.name}|{key.lower()}", text, [*asked(forms, key), by])))
            if column.reverse and values.count(text) == 1 and names[number] in lines[line]:
                back = [form.format(v=text) for form in mine(column.reverse, rows.wording)]
                found.append((line, question(f"record by {column.name}|{text.lower()}", names[number], back)))
        if absent:
            missing += asked([ask for ask in forms if not _VAGUE.match(ask)][:2], absent)
    for column in columns:
        if column not in shown and (clear := _clear(mine(column.asks, rows.wording), present)):
            missing += asked([pick(rng, clear)], pick(rng, keys))
    found = [(line, each) for line, each in found if line >= 0]
    if not all(writer.free(each) for _, each in found):
        return 0
    writer.taken[f"table {domain}"] = "table"
    lead = pick(rng, LEADS).format(t=title.lower(), T=title)
    known = rows.paste(lines, found, lead)
    writer.subjects |= {name.lower() for name in [*names, absent] if known and not days and len(name) > 2}
    rng.shuffle(missing)
    return rows.ask_some(known, missing)


def _form(writer: Writer) -> int:
    """A document: a line a field, JSON, or all in one line."""
    rng, rows = writer.rng, Rows(writer)
    (name, titles, *whom), fields = pick(rng, _FORMS) if rng.random() < 0.8 else _FORMS[0]
    title, computer = pick(rng, listed(titles)), "settings" in name
    fields = [f for f in fields if f"field|{f.name}" not in writer.taken and not (computer and writer.mentions(f.name))]
    if len(fields) < 4 or f"form {name}" in writer.taken or writer.mentions(title.lower()):
        return 0
    *fields, absent = rng.sample(fields, min(len(fields), 4 + below(rng, 5)))
    told = {field: (pick(rng, field.labels), cell(rng, rows.split, field.kind, rng.random())) for field in fields}
    style, shown = rng.random(), list(told.values())
    named = next((text for field, (_, text) in told.items() if field.name == "name"), "")
    if named and writer.mentions(named.lower()):
        return 0
    who = {"w": named if named and rng.random() < 0.7 else (whom or ["it"])[0]}
    if style < (0.3 if computer else 0.08):
        parts = [f"{json.dumps(n)}: {json.dumps(plain(c), ensure_ascii=False)}" for n, c in shown]
        lines = ["{", *(f"  {part}," for part in parts[:-1]), f"  {parts[-1]}", "}"]
        lines = ["{" + ", ".join(parts) + "}"] if style < 0.12 else lines
    else:
        form = pick(rng, ["{n}: {c}", "{n}: {c}", "- {n}: {c}", "{n} = {c}", "{n}\t{c}", "{n} {c}", *(("{n}={c}", "{u}={c}") if computer else ("{n} - {c}", "| {n} | {c} |", "* {n}: {c}", "{n}: {c}"))])  # fmt: skip
        lines = [form.format(n=n if computer else capital(n), c=c, u=n.upper().replace(" ", "_")) for n, c in shown]
        if not computer and style > 0.92:
            lines = [pick(rng, (", ", "; ", " | ")).join(f"{n}: {c}" for n, c in shown)]
    found = []
    for field, (label, text) in told.items():
        label = label if label.isalpha() and len(label) > 2 else field.name.replace("_", " ")
        forms = mine(_SET if computer else _WRITTEN, rows.wording)
        asks = [ask.format_map(who) for ask in mine(field.asks, rows.wording)]
        asks += [form.format(c=label.lower(), t=title) for form in forms[:3]]
        line = next((n for n, line in enumerate(lines) if text in line and told[field][0].lower() in line.lower()), -1)
        names = (f"field|{field.name}", *(re.sub(r" (the|my|our) ", " ", ask) for ask in asks))
        found.append((line, question(f"form {name} {field.name}", text, asks, names)))
    if not all(line >= 0 and writer.free(each) for line, each in found):
        return 0
    writer.taken[f"form {name}"] = "form"
    missing = _clear(mine(absent.asks, rows.wording), [ask for field in told for ask in field.asks])
    known = rows.paste(lines, found, pick(rng, LEADS).format(t=title, T=capital(title)))
    asked = rows.ask_some(known, [ask.format_map(who) for ask in missing if ask.startswith(ASKING)][:1])
    writer.subjects |= {field.name.replace("_", " ") for field in [*fields, absent] if computer}
    writer.subjects |= {named.lower()} if named else set()
    if known and rng.random() < 0.45:
        one = pick(rng, known)
        asked += changed(rows, one, next(f for f in fields if one.question.signature.endswith(f" {f.name}")).kind)
    return asked


def play(writer: Writer) -> int:
    """Paste rows, and ask for some of them; returns the number of questions."""
    plays = (_table,) * 5 + (_form,) * 3 + (lookup,) + (bare_rows,) * 3 + (log,) * 2
    return pick(writer.rng, plays)(writer)
