"""Tables whose rows have two keys, in the formats that people paste, and what is asked of them: a cell by both keys and the column's
name, the first and the last row, the greatest and the least, how many rows.

A block of texts/lookups.txt: titles | key | second key | columns, each `noun header: values`, with "! greatest/least" for numbers;
then, for each column, questions with {a} and {b}, the row's keys. Kinds of values are those of layouts/domains.
"""

import re
from dataclasses import replace

from .. import manners
from ..phrases import Question, capital
from ..splits import pick, split_of
from ..turns import QUOTE, REFUSAL, VALUE, WORDS, Known, Piece, Turn
from .grids import Table, draw, entry, lines, number

_ENDS = {
    "first": "what is the first {n} in the {t}|which {n} comes first in the {t}|what is in the first row of the {t}|first {n} in the {t}|what's the first entry of the {t}|which {n} is at the top of the {t}|top row of the {t}",
    "last": "what is the last {n} in the {t}|which {n} comes last in the {t}|what is in the last row of the {t}|last {n} in the {t}|what's the last entry of the {t}|which {n} is at the bottom of the {t}|bottom row of the {t}",
}
_COUNTS = "how many rows does the {t} have|how many lines are in the {t}|count the rows of the {t}|how many entries does the {t} have|how many rows are there in the {t}|number of rows in the {t}|how long is the {t}"
_MOST = "which {n} is the {m} in the {t}|what is the {m} {n} in the {t}|{m} {n} in the {t}|which row of the {t} is the {m}|which is the {m} in the {t}"
_BY_COLUMN = "what is the {c} of {a} {b}|{c} of {a} {b}|{a} {b} {c}|what does the {t} say under {c} for {a} {b}|which {c} has {a} {b}|look up the {c} of {a} {b} in the {t}|the {c} for {a} and {b}"


_AN = re.compile(r" a(?= [aeiou])")


def _mine(forms: str | tuple[str, ...], wording: str) -> list[str]:
    """The forms of a split, or those of training where it has none."""
    every = forms.split("|") if isinstance(forms, str) else list(forms)
    return (
        [f for f in every if split_of(f"lookup {f}") == wording]
        or [f for f in every if split_of(f"lookup {f}") == "train"]
        or every
    )


def play(writer) -> int:
    """Paste a table, ask some questions of it, and leave others for later."""
    rng, wording = writer.rng, writer.wording.split
    table = draw(rng, writer.split)
    text, skip = lines(rng, table)
    if (
        f"table {table.title}" in writer.taken
        or any(writer.mentions(part.lower()) for part in (table.title, *(" ".join(row[:2]) for row in table.rows)))
        or any(map(writer.names_subject, text))
    ):
        return 0
    writer.taken[f"table {table.title}"] = "table"
    lead = pick(
        rng,
        [
            "{T}:",
            "Here is the {t}:",
            "the {t}",
            "This is the {t}:",
            "# {T}",
            "{T}",
            "I paste the {t}:",
            "from our {t}:",
        ],
    ).format(t=table.title, T=capital(table.title))
    positions, body = [], lead + pick(rng, ["\n", "\n\n"])
    for line in text:
        positions.append(len(body))
        body += line + "\n"
    turn = len(writer.turns)
    known = []
    for row_number, row in enumerate(table.rows):
        line, start = text[skip + row_number], positions[skip + row_number]
        where = (turn, start, start + len(line))
        for question in _cells(table, row, wording, rng):
            if (
                any(name in writer.taken for name in (question.signature, *question.aliases))
                or question.value not in line
            ):
                continue
            writer.taken.update((name, question.signature) for name in (question.signature, *question.aliases))
            found = Known(question, line.strip(), where, writer.length + where[2], "Your text says")
            writer.known[question.signature] = found
            known.append(found)
    _note_missing(writer, table)
    body = body.rstrip("\n")
    ends = [Known(question, text[skip + n].strip(), (turn, positions[skip + n], positions[skip + n] + len(text[skip + n])), writer.length, "Your text says")
            for question, n in _ends(table, rng, wording)]  # fmt: skip
    compared = [Known(question, text[skip + n].strip(), (turn, positions[skip + n], positions[skip + n] + len(text[skip + n])), writer.length, "Your text says")
                for question, n in _compared(table, rng, wording)]  # fmt: skip
    asked, counted = 0, False
    if not known or rng.random() < 0.5:
        writer.append(Turn(body, [(manners.READ if len(body) > 900 else manners.NOTED, WORDS)]))
        body = ""
    else:
        body += "\n"
    for _ in range(1 + int(rng.random() * 3) if rng.random() < writer.asks_at_once else 0):
        style = rng.random()
        if style < 0.55 and known:
            writer.append(writer.ask_for(pick(rng, known), body))
        elif style < 0.7:
            writer.append(writer.ask_for(pick(rng, ends), body))
        elif style < 0.88 and compared:
            writer.append(replace(writer.ask_for(pick(rng, compared), body), kind="compared"))
        elif not counted:
            writer.append(_count(writer, table, body))
            counted = True
        else:
            continue
        asked += 1
        body = ""
    if body.strip():
        writer.append(Turn(body.rstrip(), [(manners.READ if len(body) > 900 else manners.NOTED, WORDS)]))
    return asked


def _cells(table: Table, row: list[str], wording: str, rng) -> list[Question]:
    found = []
    for n, column in enumerate(table.columns[2:], 2):
        forms = _mine(column.asks, wording)
        if column.header not in ("who", "booked by"):
            forms = [*forms, pick(rng, _mine(_BY_COLUMN, wording))]
        asks = [_AN.sub(" an", form.format(a=row[0], b=row[1], c=column.header, t=table.title)) for form in forms]
        direct = [ask for ask in asks if re.match(r"(what|who|how|which|when|from|look) ?", ask)]
        signature = f"cell {column.header}|{row[0].lower()}|{row[1].lower()}"
        aliases = (f"cell {table.columns[0].header}|{column.header}|{row[0].lower()}|{row[1].lower()}",)
        found.append(
            Question(signature, row[n], direct or asks, [], [ask for ask in asks if ask not in direct], [], aliases)
        )
    return found


def _note_missing(writer, table: Table) -> None:
    """A row that the table does not have, although each of its keys is in it or could be."""
    rng, wording = writer.rng, writer.wording.split
    for _ in range(2):
        row = [pick(rng, table.rows)[0], pick(rng, table.rows)[1]]
        if rng.random() < 0.4:
            at = int(rng.random() * 2)
            row[at] = entry(rng, writer.split, table.columns[at].kind, 0.5)
        same = {tuple(sorted((r[0].lower(), r[1].lower()))) for r in table.rows}
        if row[0] == row[1] or tuple(sorted((row[0].lower(), row[1].lower()))) in same:
            continue
        for question in _cells(table, [*row, *[""] * 9], wording, rng):
            writer.missing.append(replace(question, value=""))


def _ends(table: Table, rng, wording: str) -> list[tuple[Question, int]]:
    found = []
    for name, n in (("first", 0), ("last", len(table.rows) - 1)):
        asks = [form.format(n=table.columns[0].noun, t=table.title) for form in _mine(_ENDS[name], wording)]
        found.append((Question(f"{name} {table.title}", table.rows[n][0], asks), n))
    return found


def _compared(table: Table, rng, wording: str) -> list[tuple[Question, int]]:
    """The greatest and the least of each column of numbers, where it is one row alone and so is its first key."""
    found = []
    for n, column in enumerate(table.columns):
        numbers = [x for row in table.rows if (x := number(row[n])) is not None]
        if not column.extremes or len(numbers) < max(2, len(table.rows)):
            continue
        for extreme, best in zip(column.extremes, (max(numbers), min(numbers)), strict=True):
            if numbers.count(best) == 1:
                at = numbers.index(best)
                asks = [
                    form.format(n=table.columns[0].noun, m=extreme, t=table.title) for form in _mine(_MOST, wording)
                ]
                asks += [
                    f"which {table.columns[0].noun} in the {table.title} has the {'highest' if best == max(numbers) else 'lowest'} {column.header}"
                ]
                if best == max(numbers) == min(numbers):
                    continue
                found.append((Question(f"{extreme} {table.title}", table.rows[at][0], asks), at))
    return found


def _count(writer, table: Table, before: str) -> Turn:
    """The number of rows. A thought counts them; without one the answer knows no more than five."""
    rng = writer.rng
    count = len(table.rows)
    thinks = rng.random() < max(writer.thinking, 0.5)
    text = writer.join(
        before, writer.typed_question(pick(rng, _mine(_COUNTS, writer.wording.split)).format(t=table.title))
    )
    names = [f"{row[0]} {row[1]}" for row in table.rows]
    thought: list[Piece] = [
        piece for n, name in enumerate(names, 1) for piece in ((f"{n}: ", VALUE), (f"{name} ", QUOTE))
    ]
    answer: list[Piece] = [(str(count), VALUE), (". Your text lists: ", WORDS), (", ".join(names), QUOTE), (".", WORDS)]
    if thinks:
        thought[-1] = (names[-1], QUOTE)
    elif count > 5:
        return Turn(text, [(manners.COUNT, REFUSAL)], "counted", manners.COUNT)
    return Turn(text, answer, "counted", str(count), thought if thinks else None)
