"""Pasted records: tables in which any column may be the key, and settings of one thing; asked for in passing.

texts/records.txt: a block names its titles, its columns with their kinds of values, and questions for one column by a cell {k} of
another. texts/settings.txt: names, kinds of values, questions. A setting may be changed in a sentence.
"""

import json
from dataclasses import dataclass, replace

from .. import manners, texts
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of
from ..turns import WORDS, Known, Turn
from .record_formats import plain, written
from .remark_values import thing, value
from .telling import Telling


@dataclass(frozen=True)
class _Sheet:
    titles: tuple[str, ...]
    columns: dict[str, str]
    asks: dict[tuple[str, str], tuple[str, ...]]  # by column and key


def _parse(block: str) -> _Sheet:
    head, *lines = block.strip().splitlines()
    columns, asks = {}, {}
    for line in lines:
        name, rest = line.split(": ", 1)
        if "<" in name:
            column, key = name.split("<")
            asks[column, key] = tuple(form.strip() for form in rest.split(";"))
        else:
            columns[name] = rest
    return _Sheet(tuple(title.strip() for title in head.removeprefix("@ ").split(";")), columns, asks)


SHEETS = [_parse(block) for block in texts.read("records").strip().split("\n\n")]
_LINES = [line.split(": ", 1) for line in texts.read("settings").strip().splitlines()]
SETTINGS = {
    name: (kind, tuple(form.strip() for form in asks.split(";")))
    for name, (kind, asks) in ((n, rest.split(" | ")) for n, rest in _LINES)
}
_BY_NAME = "what is the {c} of {k}|{k} {c}|{c} of {k}|what does it say under {c} for {k}|{c} for {k}|what's the {c} for {k}|look up the {c} of {k}".split(
    "|"
)
_SET = "what is {c} set to|what's {c}|{c}|what does it say for {c}|which {c} is in the {t}|what is the value of {c}|{c} in the {t}".split(
    "|"
)
_CHANGED = "I changed the {c} to {v}|the {c} is {v} now|{c} is now {v}|set {c} to {v}|we switched the {c} from {o} to {v}|new {c}: {v}|update the {c}, it's {v}|change {c} to {v}|the {c} isn't {o} anymore but {v}|{c}: {v} instead of {o}".split(
    "|"
)
_THINGS = "config|settings file|profile|deployment config|device info|booking|app settings|ticket|player sheet|server config|form|order".split(
    "|"
)


def _mine(forms, wording: str) -> list[str]:
    own = [form for form in forms if split_of(f"record {form}") == wording]
    return own or [form for form in forms if split_of(f"record {form}") == "train"] or list(forms)


HELD = {
    split: [form for form in (*_BY_NAME, *_SET, *_CHANGED) if split_of(f"record {form}") == split] for split in SPLITS
}


def _cell(rng, split: str, kind: str) -> str:
    if kind.startswith("="):
        return pick(rng, kind[1:].split("/"))
    text = (
        thing(rng, split).removeprefix("a ").removeprefix("an ").removeprefix("some ")
        if kind == "thing1"
        else value(rng, split, kind)
    )
    return text.replace(",", "")


class Records(Telling):
    """Pastes one table or one list of settings into a conversation, and asks."""

    def paste(self, lines: list[str], found: list[tuple[int, Question]], lead: str) -> list[Known]:
        """The lines as a message, and what is known of them: (line, question)."""
        writer, body = self.writer, lead
        at: list[int] = []
        for line in lines:
            at.append(len(body))
            body += line + "\n"
        known = []
        for number, question in found:
            line, names = lines[number], (question.signature, *question.aliases)
            if question.value not in line or not question.direct or any(name in writer.taken for name in names):
                continue
            writer.taken.update((name, question.signature) for name in names)
            where = (len(writer.turns), at[number], at[number] + len(line))
            made = Known(question, line.strip(), where, writer.length + where[2], "Your text says")
            writer.known[question.signature] = made
            known.append(made)
        self.body = body.rstrip("\n")
        return known

    def ask_some(self, known: list[Known]) -> int:
        """One to three questions, the first perhaps in the message itself."""
        rng, writer, asked = self.rng, self.writer, 0
        if rng.random() < 0.5 or not known:
            writer.append(Turn(self.body, [(manners.READ if len(self.body) > 900 else manners.NOTED, WORDS)]))
            self.body = ""
        for _ in range(1 + int(rng.random() * 3) if known and rng.random() < writer.asks_at_once else 0):
            writer.append(writer.ask_for(pick(rng, known), self.body + "\n" if self.body else ""))
            asked, self.body = asked + 1, ""
        if self.body:
            writer.append(Turn(self.body, [(manners.NOTED, WORDS)]))
        return asked


def _table(records: Records) -> int:
    rng, writer, split = records.rng, records.writer, records.split
    sheet = pick(rng, SHEETS)
    title = pick(rng, sheet.titles)
    names = rng.sample(list(sheet.columns), 2 + int(rng.random() * (len(sheet.columns) - 1)))
    rows: list[list[str]] = []
    for _ in range(2 + int(rng.random() * 6)):
        row = [_cell(rng, split, sheet.columns[name]) for name in names]
        low = [cell.lower() for cell in row]
        others = [cell.lower() for other in rows for cell in other]
        if not any(one in other or other in one for one in low for other in others) and len({*low}) == len(low):
            rows.append(row)
    if (
        len(rows) < 2
        or f"record {title}" in writer.taken
        or any(writer.mentions(cell.lower()) for row in rows for cell in row)
    ):
        return 0
    writer.taken[f"record {title}"] = "record"
    lines, skip = written(rng, names, rows)
    found = []
    for (column, key), forms in sheet.asks.items():
        if column not in names or key not in names:
            continue
        for number, row in enumerate(rows):
            k, text = row[names.index(key)], row[names.index(column)]
            asks = [form.format(k=k) for form in _mine(forms, records.wording)]
            asks.append(pick(rng, _mine(_BY_NAME, records.wording)).format(c=column, k=k))
            direct = [
                ask
                for ask in asks
                if ask.startswith(("what", "which", "who", "when", "where", "how", "on ", "from", "at "))
            ]
            question = Question(
                f"record {column}|{k.lower()}", text, direct or asks, [], [a for a in asks if a not in direct]
            )
            found.append((number + skip, question))
    lead = pick(
        rng,
        ["", "", f"{title}:\n", f"here is the {title}\n", f"{capital(title)}\n", f"# {title}\n", f"the {title}:\n\n"],
    )
    asked = records.ask_some(known := records.paste(lines, found, lead))
    writer.subjects |= {cell.lower() for row in rows for cell in row if known and len(cell) > 3}
    return asked


def _settings(records: Records) -> int:
    rng, writer, split = records.rng, records.writer, records.split
    what = pick(rng, _THINGS)
    if writer.mentions(what) or "settings" in writer.taken:
        return 0
    writer.taken["settings"] = "record"
    names = rng.sample(list(SETTINGS), 3 + int(rng.random() * 5))
    if any(writer.mentions(name.replace("_", " ")) for name in names):
        return 0
    cells = {name: _cell(rng, split, SETTINGS[name][0]) for name in names}
    low = [cell.lower() for cell in cells.values()]
    if any(one in other for n, one in enumerate(low) for m, other in enumerate(low) if n != m):
        return 0
    style = rng.random()
    if style < 0.3:
        lines = [json.dumps({n: plain(c) for n, c in cells.items()}, ensure_ascii=False)]
    elif style < 0.5:
        lines = ["{", *(f"  {json.dumps(n)}: {json.dumps(plain(c), ensure_ascii=False)}," for n, c in cells.items())]
        lines = [*lines[:-1], lines[-1][:-1], "}"]
    else:
        form = pick(rng, ["{n}: {c}", "{n} = {c}", "{n}={c}", "- {n}: {c}", "{u}={c}"])
        lines = [form.format(n=n, c=c, u=n.upper()) for n, c in cells.items()]
    found = []
    for name, text in cells.items():
        spoken = name.replace("_", " ")
        asks = [
            *_mine(SETTINGS[name][1], records.wording),
            *(f.format(c=spoken, t=what) for f in _mine(_SET, records.wording)[:3]),
        ]
        line = next((n for n, line in enumerate(lines) if text in line and (name in line or name.upper() in line)), 0)
        direct = [ask for ask in asks if " " in ask]
        found.append(
            (
                line,
                Question(
                    f"setting {name}", text, direct, [], [a for a in asks if a not in direct], [], (f"{spoken}|{what}",)
                ),
            )
        )
    lead = pick(rng, [f"{what}:\n", f"this is the {what}\n", f"the {what}\n", f"here's my {what}:\n", ""])
    known = records.paste(lines, found, lead)
    asked = records.ask_some(known)
    writer.subjects |= {name.replace("_", " ") for name in names}
    if known and rng.random() < 0.45:
        asked += _change(records, pick(rng, known), what)
    return asked


def _change(records: Records, known: Known, what: str) -> int:
    """Another value of a setting, told in a sentence, and perhaps a question for it."""
    rng, writer, old = records.rng, records.writer, known.question.value
    name = known.question.signature.removeprefix("setting ")
    new = _cell(rng, records.split, SETTINGS[name][0])
    if new.lower() in known.sentence.lower() or old.lower() in new.lower():
        return 0
    sentence = pick(rng, _mine(_CHANGED, records.wording)).format(c=name.replace("_", " "), v=new, o=old)
    phrase = Phrase(what, what, "story")
    records.say(
        capital(sentence),
        [(Fact(capital(sentence), [replace(known.question, value=new)], phrase, None, [], "", "topic record"), old)],
    )
    if rng.random() < 0.7 * writer.asks_at_once and (changed := writer.known.get(known.question.signature)):
        if rng.random() < 0.5:
            records.send()
        before, records.parts = "".join(records.parts).rstrip(), []
        writer.append(writer.ask_for(changed, before))
        return 1
    records.send()
    return 0


def play(writer) -> int:
    """Paste records, and ask for some of them; returns the number of questions."""
    records = Records(writer)
    return _table(records) if writer.rng.random() < 0.6 else _settings(records)
