"""Pasted rows: tables with two keys, rows and logs without headings; what stands in them, and what does not.

texts/lookups.txt: titles | key | second key | columns, each `noun header: values`, with "! greatest/least" for numbers; then, for
each column, questions with {a} and {b}, the row's keys. texts/bare.txt: rows and lines of logs without headings, and questions.
"""

import re
from dataclasses import dataclass
from functools import cache

from . import manners, values
from .cases import said
from .formats import written
from .message import Message
from .splits import below, own, pick, share
from .texts import blocks, listed, read
from .turns import QUOTE, REFUSAL, VALUE, WORDS, Known, Piece, Question, Turn
from .values import article, capital
from .writer import Writer

_MONEY = ("{}", "${}", "{} €", "€{}", "{} EUR", "£{}")


def mine(forms, wording: str) -> tuple[str, ...]:
    return _mine(tuple(forms), wording)


@cache
def _mine(forms: tuple[str, ...], wording: str) -> tuple[str, ...]:
    return own(share(forms, "row"), wording)


_CHANGED = "I changed the {c} to {v}|the {c} is {v} now|{c} is now {v}|set {c} to {v}|we switched the {c} from {o} to {v}|new {c}: {v}|update the {c}, it's {v}|change {c} to {v}|the {c} isn't {o} anymore but {v}|{c}: {v} instead of {o}".split("|")  # fmt: skip
_FIRST = "what is the first {n} in the {t}|which {n} comes first in the {t}|first {n} in the {t}|what's the first entry of the {t}|which {n} is at the top of the {t}".split("|")  # fmt: skip
_LAST = "what is the last {n} in the {t}|which {n} comes last in the {t}|last {n} in the {t}|what's the last entry of the {t}|which {n} is at the bottom of the {t}".split("|")  # fmt: skip
_MOST = "which {n} is the {m} in the {t}|what is the {m} {n} in the {t}|{m} {n} in the {t}|which row of the {t} is the {m}|which {n} in the {t} is {m}".split("|")  # fmt: skip
_COUNTS = "how many rows does the {t} have|how many lines are in the {t}|count the rows of the {t}|how many entries does the {t} have|how many rows are there in the {t}|number of rows in the {t}|how long is the {t}".split("|")  # fmt: skip
LEADS = "{T}:\n|Here is the {t}:\n|the {t}\n|This is the {t}:\n\n|# {T}\n|{T}\n\n|I paste the {t}:\n|from our {t}:\n|".split(
    "|"
)
ASKING = ("what", "which", "who", "when", "where", "how", "on ", "from", "at ", "in ", "look ")


def question(signature: str, value: str, asks: list[str], names: tuple[str, ...] = ()) -> Question:
    """Its questions, and those in a word apart."""
    asks = [article(ask) for ask in asks]
    direct = [ask for ask in asks if ask.startswith(ASKING)]
    return Question(signature, value, direct or asks, [], [ask for ask in asks if ask not in direct], names)


def cell(rng, split: str, kind: str, style: float = 0.0) -> str:
    """style, from 0 to 1, is that of the column's amounts."""
    if "/" in kind:
        return pick(rng, kind.removeprefix("=").split("/"))
    if kind[0] == "#":
        low, high = map(int, kind[1:].rstrip("%").split("-"))
        return f"{low + below(rng, high - low + 1)}{'%' if kind[-1] == '%' else ''}"
    if kind == "$":
        amount = f"{below(rng, 60) + 1}.{below(rng, 100):02d}" if style * 7 % 1 < 0.6 else str(below(rng, 990) + 2)
        return _MONEY[int(style * len(_MONEY))].format(amount)
    kind = {"@": "time", "given": "firstname", "thing1": "thing"}.get(kind, kind)
    return re.sub(r"^(a|an|some) |,", "", values.value(rng, split, kind))


class Rows(Message):
    """Pastes rows into a conversation, and asks."""

    def paste(self, lines: list[str], found: list[tuple[int, Question]], lead: str) -> list[Known]:
        """The lines as a message, and what is known of them: (line, question)."""
        writer, body, at = self.writer, lead, []
        for line in lines:
            at.append(len(body))
            body += line + "\n"
        self.body, self.at, self.lines = body.rstrip("\n"), at, lines
        self.turn, self.begin = len(writer.turns), writer.length
        known = []
        for number, question in found:
            if question.value in lines[number] and question.asks and writer.free(question):
                writer.taken.update((name, question.signature) for name in question.every_name)
                writer.known[question.signature] = self.standing(number, question)
                known.append(writer.known[question.signature])
        return known

    def standing(self, number: int, question: Question) -> Known:
        line = self.lines[number]
        where = (self.turn, self.at[number], self.at[number] + len(line))
        return Known(question, line.strip(), where, self.begin + where[2], "Your text says")

    def read(self) -> None:
        if self.body:
            reply = manners.READ if len(self.body) > 900 else manners.NOTED
            thought: list[Piece] | None = [("", WORDS)] if self.writer.thinks() else None
            self.writer.append(Turn(self.body, [(reply, WORDS)], thought=thought))
            self.body = ""

    def ask_some(self, known: list[Known], missing: list[str], turns=()) -> int:
        """One to three questions, the first perhaps in the message itself. turns: what makes others, of the text before."""
        rng, writer = self.rng, self.writer
        if rng.random() < 0.5 or not known:
            self.read()
        for _ in range(1 + below(rng, 3) if known and rng.random() < writer.asks_at_once else 0):
            before, style = self.body + "\n" if self.body else "", rng.random()
            if missing and style < 0.19:
                turn = writer.refusal(missing.pop(), before)
            elif turns and style < 0.5:
                turn = pick(rng, turns)(before)
            else:
                turn = writer.ask_for(pick(rng, known), before)
            writer.append(turn)
            self.asked, self.body = self.asked + 1, ""
        self.read()
        writer.missing += missing[: rng.random() < 0.5]
        return self.asked


def _distinct(rows: list[list[str]], row: list[str]) -> bool:
    low = [cell.lower() for cell in row]
    others = [cell.lower() for other in rows for cell in other]
    return not any(one in other or other in one for one in low for other in others) and len({*low}) == len(low)


def changed(rows: Rows, known: Known, kind: str) -> int:
    """Another value of a field, told in a sentence, and perhaps a question for it."""
    rng, writer, old = rows.rng, rows.writer, known.question
    name = old.names[0].removeprefix("field|")
    new = cell(rng, rows.split, kind)
    if new.lower() in known.sentence.lower() or old.value.lower() in new.lower():
        return 0
    sentence = pick(rng, mine(_CHANGED, rows.wording)).format(c=name.replace("_", " "), v=new, o=old.value)
    rows.say(capital(sentence), [Question(old.signature, new, old.asks, [], old.shorts, old.names)])
    if rng.random() < 0.7 * writer.asks_at_once:
        rows.answered(writer.known[old.signature])
        return 1
    rows.send()
    return 0


# Tables with two keys


@dataclass(frozen=True)
class _Column:
    noun: str
    header: str
    kind: str
    extremes: tuple[str, ...]
    asks: tuple[str, ...]


def _domain(text: str) -> tuple[tuple[str, ...], list[_Column]]:
    head, *lines = text.splitlines()
    titles, *columns = (part.strip() for part in head.split(" | "))
    asks = dict(line.strip().split("? ", 1) for line in lines)
    found = []
    for column in columns:
        named, kinds = column.split(": ", 1)
        noun, header = named.split(" ", 1)
        kind, _, extremes = (part.strip() for part in kinds.partition(" ! "))
        found.append(_Column(noun, header, kind, listed(extremes, "/"), listed(asks.get(noun, ""), "|")))
    return listed(titles), found


_DOMAINS = [_domain(block) for block in re.split(r"\n(?=\S)", read("lookups"))]


def _number(text: str) -> float | None:
    """An amount or a count; None if there is none, or several."""
    found = re.findall(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if len(found) == 1 else None


def lookup(writer: Writer) -> int:
    rng, split, pasted = writer.rng, writer.split, Rows(writer)
    titles, columns = pick(rng, _DOMAINS)
    title, columns = pick(rng, titles), [*columns[:2], *rng.sample(columns[2:], 1 + below(rng, len(columns) - 2))]
    styles = [rng.random() for _ in columns]
    rows: list[list[str]] = []
    for _ in range(40):
        row = [cell(rng, split, column.kind, style) for column, style in zip(columns, styles, strict=True)]
        if rows and rng.random() < 0.4:  # shares a key with another row
            at = below(rng, 2)
            row[at] = pick(rng, rows)[at]
        if row[0] != row[1] and all(row[:2] != other[:2] and row[1::-1] != other[:2] for other in rows):
            rows.append(row)
        if (len(rows) > 2 and rng.random() < 0.2) or len(rows) == 9:
            break
    keys = [title, *(" ".join(row[:2]) for row in rows)]
    if len(rows) < 3 or f"table {title}" in writer.taken or any(writer.mentions(key.lower()) for key in keys):
        return 0
    writer.taken[f"table {title}"] = "table"
    *rows, left_out = rows
    lines, where = written(rng, [column.header for column in columns], rows)
    known: list[tuple[int, Question]] = []
    missing = []
    for number, row in enumerate([*rows, left_out]):
        for n, column in enumerate(columns[2:], 2):
            asks = [form.format(a=row[0], b=row[1]) for form in mine(column.asks, pasted.wording)]
            asks.append(f"{column.header} of {row[0]} {row[1]}")
            names_ = (f"cell {columns[0].header}|{column.header}|{row[0].lower()}|{row[1].lower()}",)
            if row is left_out:
                missing.append(pick(rng, asks))
            else:
                signature = f"cell {title} {column.header}|{row[0].lower()}|{row[1].lower()}"
                known.append((where[number][n], question(signature, row[n], asks, names_)))
    lead = pick(rng, LEADS).format(t=title, T=capital(title))
    found = pasted.paste(lines, known, lead)
    noun = columns[0].noun
    ends = [(forms, n, "", "stated") for forms, n in ((_FIRST, 0), (_LAST, len(rows) - 1))]
    for n, column in enumerate(columns):
        numbers = [x for row in rows if (x := _number(row[n])) is not None]
        if column.extremes and len(numbers) == len(rows) and max(numbers) != min(numbers):
            for extreme, best in zip(column.extremes, (max(numbers), min(numbers)), strict=True):
                if numbers.count(best) == 1:
                    ends.append((_MOST, numbers.index(best), extreme, "compared"))

    def end(before: str) -> Turn:
        forms, n, extreme, kind = pick(rng, ends)
        asks = [form.format(n=noun, t=title, m=extreme) for form in mine(forms, pasted.wording)]
        turn = writer.ask_for(pasted.standing(where[n][0], Question(f"end {n}", rows[n][0], asks)), before)
        turn.kind = kind
        return turn

    def count(before: str) -> Turn:
        text = writer.join(before, writer.question(pick(rng, mine(_COUNTS, pasted.wording)).format(t=title)))
        return _counted(writer, text, [f"{row[0]} {row[1]}" for row in rows])

    return pasted.ask_some(found, missing, (end, end, count))


def _counted(writer: Writer, text: str, names: list[str]) -> Turn:
    """The number of rows. A thought counts them; without one the answer knows no more than five."""
    thought: list[Piece] | None = None
    if writer.rng.random() < max(writer.thinking, 0.5):
        thought = [piece for n, name in enumerate(names, 1) for piece in ((f"{n}: ", VALUE), (f"{name} ", QUOTE))]
        thought[-1] = (names[-1], QUOTE)
    elif len(names) > 5:
        return Turn(text, [(manners.COUNT, REFUSAL)], "counted", manners.COUNT)
    answer: list[Piece] = [(str(len(names)), VALUE), (". Your text lists: ", WORDS), (", ".join(names), QUOTE)]
    return Turn(text, [*answer, (".", WORDS)], "counted", str(len(names)), thought)


# Rows and logs without headings


@dataclass(frozen=True)
class _Bare:
    """lead: of the rows, perhaps none; key, values: kinds; asks: for each value by the key {k}."""

    leads: tuple[str, ...]
    key: str
    values: tuple[str, ...]
    asks: tuple[tuple[str, ...], ...]


def _bare(lines: list[str]) -> _Bare:
    leads, key, *kinds = (part.strip() for part in lines[0].removeprefix("@ ").split("|"))
    return _Bare(listed(leads), key, tuple(kinds), tuple(listed(line) for line in lines[1:]))


_BLOCKS = blocks("bare")
_BARE = [_bare(lines) for lines in _BLOCKS if lines[0].startswith("@ ")]
_LOGGED = [line for lines in _BLOCKS if lines[0].startswith("# log") for line in lines[1:]]
_EVENTS = [[part.strip() for part in line.split("|")] for line in _LOGGED]
_MARKS = (" ", " ", " ", ": ", " - ", ", ", "\t", " = ", " | ", "; ", " -> ", "  ", " – ", ",", ":", " … ", ". ")
_STARTS = ("", "", "", "", "- ", "* ", "> ", "• ")


def bare_rows(writer: Writer) -> int:
    rng, split, rows_ = writer.rng, writer.split, Rows(writer)
    block = pick(rng, _BARE)
    count = 1 + (len(block.values) > 1 and rng.random() < 0.5)
    rows: list[list[str]] = []
    for _ in range(3 + below(rng, 6)):
        row = [
            values.made(rng, split, pick(rng, block.key.split("/"))),
            *(cell(rng, split, kind) for kind in block.values[:count]),
        ]
        key, *low = (cell.lower() for cell in row)
        apart = all(key != other[0].lower() for other in rows) and not any(key in c or c in key for c in low)
        if apart and _distinct([other[1:] for other in rows], row[1:]):
            rows.append(row)
    if len(rows) < 3 or any(writer.mentions(row[0].lower()) for row in rows):
        return 0
    *rows, left_out = rows
    mark, start, numbered, backwards = pick(rng, _MARKS), pick(rng, _STARTS), rng.random() < 0.08, rng.random() < 0.12
    lines = []
    for number, row in enumerate(rows, 1):
        cells = row[::-1] if backwards else row
        lines.append((f"{number}. " if numbered else start) + mark.join(cells))
    asks = [mine(forms, rows_.wording) for forms in block.asks]
    found, missing = [], []
    for number, row in enumerate([*rows, left_out]):
        for at in range(count):
            texts = [form.format(k=row[0]) for form in asks[at]]
            if count == 1 and number < len(rows):
                texts.append(row[0])
            if row is left_out:
                missing += texts
            else:
                found.append((number, question(f"bare {at}|{row[0].lower()}", row[1 + at], texts)))
    if count < len(block.asks):  # what these rows do not have
        missing += [form.format(k=pick(rng, rows)[0]) for forms in asks[count:] for form in forms]
    rng.shuffle(missing)
    lead = pick(rng, block.leads).strip() if block.leads and rng.random() < 0.4 else ""
    known = rows_.paste(lines, found, f"{lead}{pick(rng, [':', ''])}\n" if lead else "")
    asked = rows_.ask_some(known, [text for text in missing if text.startswith(ASKING)][:2])
    writer.subjects |= {row[0].lower() for row in [*rows, left_out] if len(row[0]) > 2}
    return asked


_STAMPS = ((0.6, "{c}"), (0.75, "[{c}]"), (0.9, "{d} {c}"), (1.0, "{d}T{c}:00Z"))
_LEVELS = ("INFO", "WARN", "ERROR", "DEBUG", "info:", "[warn]", "[error]", "[info]", "notice")


def log(writer: Writer) -> int:
    """Lines of a log, each with its time."""
    rng, split, rows = writer.rng, writer.split, Rows(writer)
    style, levels, hour = rng.random(), rng.random() < 0.5, below(rng, 20)
    day = f"2026-{1 + below(rng, 12):02d}-{1 + below(rng, 28):02d}"
    shown = next(form for share, form in _STAMPS if style < share)
    lines: list[str] = []
    found: list[tuple[int, Question]] = []
    said_: set[str] = set()
    minute = 0

    def add(signature: str, value: str, noun: str, forms: str) -> None:
        asks = [form.format(n=noun) for form in mine(listed(forms), rows.wording)]
        found.append((len(lines) - 1, question(f"log {signature}|{noun.lower()}", value, asks)))

    for form, kind, times, asks in rng.sample(_EVENTS, min(len(_EVENTS), 4 + below(rng, 9))):
        minute += 1 + below(rng, 25)
        clock = f"{hour + minute // 60:02d}:{minute % 60:02d}"
        stamp = shown.format(d=day, c=f"{clock}:{below(rng, 60):02d}" if 0.35 <= style < 0.6 else clock)
        noun, text = values.value(rng, split, pick(rng, ("softname", "host", "word", "file", "firstname"))), ""
        if kind:
            text = cell(rng, split, kind)
        if noun.lower() in said_ or writer.mentions(noun.lower()) or (text and (text in noun or noun in text)):
            continue
        said_.add(noun.lower())
        lines.append(" ".join([stamp, *([pick(rng, _LEVELS)] if levels else []), said(form, {"n": noun, "v": text})]))
        add(f"time {form}", stamp.strip("[]"), noun, times)
        if text:
            add(form, text, noun, asks)
    if len(lines) < 3:
        return 0
    absent = values.value(rng, split, pick(rng, ("softname", "host", "word")))
    form, _, times, asks = pick(rng, _EVENTS)
    missing = [] if absent.lower() in said_ else [pick(rng, listed(asks or times)).format(n=absent)]
    writer.subjects |= {*said_, absent.lower()}
    lead = pick(rng, ["", "", "", "log:\n", "from the log:\n", "here is the log\n", "```\n"])
    return rows.ask_some(rows.paste(lines, found, lead), missing)
