"""Reads tables as people paste them, and what is asked of them: a cell by both keys, the first and last row, extremes."""

import csv
import difflib
import io
import json
import re
from pathlib import Path

from demo_model.dialogues import texts
from support import english

# What stands in a column, for which a line has no word.
_COLUMNS = english.words(
    """aisle assign assignee bed belong birthday born calories carried catch config connect departure deploy deployed desk
    destination device dial duration duty finish form grade hood info item line listen logged lunch manager maximum most
    opener order payment percentage player point port present profile quantity release report restarter restarts result
    retries retry rich scorer sheet shift state status stock stop task team topic try under warm went deep database"""
)
# And the words in which people ask for the columns of tables.txt and the fields of forms.txt; the names of rows are not among them.
_FILES = [Path(texts.__file__).parent / f"{name}.txt" for name in ("tables", "forms")]
_COLUMNS |= english.words(re.sub(r"\{\w\}|[^a-z ]", " ", " ".join(file.read_text().lower() for file in _FILES)))
_MARKS = re.compile(r"[:=|,;\t]")
# Of a document about one thing: the line that names it.
_NAME = re.compile(r"(?i)[^a-z]*(name|full name|customer|applicant|patient|animal|called|model|make|vehicle)\b[^a-z]")
_NOT_FIRST = re.compile(
    r"(?i)one last thing:|first (floor|aid)|at first|.* first, |last (seen|modified|day)|the last (?-i:[A-Z])|lasts"
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Table = tuple[list[str], list[list[str]], list[str]]  # headers, rows, the rows' lines


def parse_table(lines: list[str]) -> Table | None:
    """(headers, rows, lines) of Markdown, JSON, aligned columns, `header: value` pairs or separated values; None for other text."""
    lines = [line.rstrip() for line in lines if line.strip()]
    for start in range(len(lines)):
        rest = lines[start:]
        if rest[0].startswith("|") and len(rest) > 2:
            cells = [[part.strip() for part in line.strip("|").split("|")] for line in rest if line.startswith("|")]
            kept = [line for line in rest if line.startswith("|")]
            return cells[0], cells[2:], kept[2:]
        if rest[0].startswith("{") or rest[0] == "[":
            kept = [line for line in rest if line.startswith("{")]
            try:  # a braced line may be something else
                records = [json.loads(line.rstrip(",")) for line in kept]
            except ValueError:
                return None
            if not records:
                return None
            return list(records[0]), [list(record.values()) for record in records], kept
        if re.match(r"[\w ]+: [^,]+, [\w ]+: ", rest[0]):
            kept = [line for line in rest if re.match(r"[\w ]+: [^,]+, [\w ]+: ", line)]
            pairs = [[part.split(": ", 1) for part in line.split(", ")] for line in kept]
            if any(len(pair) != 2 for row in pairs for pair in row):
                return None
            return [name for name, _ in pairs[0]], [[value for _, value in row] for row in pairs], kept
        for mark in ("\t", ";", ","):
            if rest[0].count(mark) >= 2 and len(rest) > 1:
                kept = [line for line in rest if line.count(mark) == rest[0].count(mark)]
                cells = [
                    [part.strip() for part in row] for row in csv.reader(io.StringIO("\n".join(kept)), delimiter=mark)
                ]
                return cells[0], cells[1:], kept[1:]
        if len(re.split(r" {2,}", rest[0])) >= 3:
            kept = [line for line in rest if len(re.split(r" {2,}", line)) == len(re.split(r" {2,}", rest[0]))]
            cells = [re.split(r" {2,}", line) for line in kept]
            return cells[0], cells[1:], kept[1:]
    return None


def disagrees(table: Table, question: str, value: str, line: str) -> tuple[str | None, bool]:
    """(what is wrong with the answer, or None; whether rows were compared): a value, and the line of the table that has it."""
    headers, rows, lines = table
    rows = [[str(cell) for cell in row] for row in rows]
    at, named = lines.index(line), _NOT_FIRST.sub("", question)
    if says(named, "first", "top"):
        return (None if at == 0 and value == rows[0][0] else "not the first row"), False
    if says(named, "last", "bottom"):
        return (None if at == len(rows) - 1 and value == rows[-1][0] else "not the last row"), False
    if value == rows[at][0] and (n := compared_column(named, headers)) is not None:
        numbers = [float(re.findall(r"\d+(?:\.\d+)?", row[n])[0]) for row in rows]
        least = says(named, "cheapest", "rarest", "lightest", "shortest", "smallest", "weakest", "worst", "lowest")
        best = min(numbers) if least else max(numbers)
        return (None if numbers[at] == best and numbers.count(best) == 1 else "not the extreme"), True
    if len(rows) == 1:  # one thing's settings: the question names a header, or the value fits by itself
        meant = [
            n
            for n, header in enumerate(headers)
            if len(header) > 2 and has_key(header.replace("_", " "), question.lower())
        ]
        wanted = [rows[0][n] for n in meant] or [value]
        return (None if value in wanted else f"{wanted} is asked for"), False
    return another_line([";".join(headers), *lines], question, line), False


def another_line(lines: list[str], question: str, line: str) -> str | None:
    """The line that the question names more of than of the one that was quoted, or None."""
    asked = english.roots(question) - set(map(english.root, english.SMALL))
    rows = [text.strip() for text in lines if text.strip()]

    def named(text: str) -> int:
        return len(english.roots(text.replace("_", " ")) & asked)

    keys = (
        english.naming(question)
        - set(map(english.root, _COLUMNS))
        - english.roots(" ".join(rows[:2]).replace("_", " "))
    )
    said = f"{line} {line.replace('_', ' ')} {_around(rows, line, keys)}"
    if keys and not keys & english.roots(said):
        return f"the line says nothing of {sorted(keys)}"
    best = max(rows[2:] or rows, key=named)  # after a title and headings
    return f"{best!r} is asked for" if named(best) > named(said) else None


def _around(rows: list[str], line: str, keys: set[str]) -> str:
    """What belongs to a line that is a part of a row: the lines since the last one of its kind, or the first cell of its column."""
    text = " ".join(day for day in _DAYS if re.search(rf"\b{day[:3]}\b", line))
    text += " ".join(row for row in rows if _NAME.match(row))
    label = _MARKS.split(line)[0]
    alike = [n for n, row in enumerate(rows) if _MARKS.split(row)[0] == label]
    if len(alike) > 1 or len(rows) < 4:
        spans = [(max((n for n in alike if n < at), default=-1) + 1, at) for at in alike if rows[at] == line]
        return " ".join([text, *(row for begin, end in spans for row in rows[begin:end])])
    at = rows.index(line) if line in rows else 0
    cells = [_MARKS.split(row) for row in rows]
    heads = next((row for row in cells if len(row) == len(cells[at]) > 2), [])
    return " ".join([text, *(head for head in heads if keys & english.roots(head))])


def says(question: str, *words: str) -> bool:
    """Decide whether the question has one of the words, perhaps mistyped or without a space around it."""
    text = question.lower()
    return any(
        re.search(rf"\b{re.escape(word)}\b", text)
        or (len(word) > 3 and difflib.get_close_matches(word, re.findall(r"\w+", text), 1, 0.87))
        for word in words
    )


def has_key(key: str, asked: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(key.lower())}(?!\w)", asked) is not None or key.lower() + "s" in asked


def compared_column(question: str, headers: list[str]) -> int | None:
    headers = [header.lower() for header in headers]
    words = {
        "price": "most expensive|cheapest", "rent": "most expensive|cheapest", "stock": "common in stock|rarest in stock",
        "calories": "richest|lightest", "hours": "longest|shortest", "seats": "largest|smallest", "points": "best|weakest",
        "sales": "strongest|weakest", "grade": "best|worst", "size": "biggest|smallest",
    }  # fmt: skip
    for n, header in enumerate(headers):
        if n > 1 and (
            says(question, f"highest {header}", f"lowest {header}")
            or (header in words and says(question, *words[header].split("|")))
        ):
            return n
    return None
