"""Tables of a domain in the formats that people paste: Markdown, CSV, JSON, YAML, ini, bullets, one line …"""

import re

from ..clauses import Grammar
from ..lexicon import DAYS
from ..phrases import Question
from ..splits import pick, split_of
from .domains import Domain
from .drawn import Line, Table, draw_table
from .formats import FORMATS
from .kinds import cell, plural

_VAGUE = re.compile(r"^(where|when|who|what|how much|how) (?:is|are) (?:the |flight |parcel |locker )?\{[eE]\}$")


def questions(grammar: Grammar, table: Table) -> dict[tuple[int, int, bool], Question]:
    """By row, column and direction; True: by the value."""
    rng, domain = grammar.rng, table.domain
    found: dict[tuple[int, int, bool], Question] = {}
    vague_taken: set[str] = set()
    for number, column in enumerate(table.columns):
        shown = [row[number] for row in table.cells]
        header = table.headers[number]
        asks = of_split(column.asks, f"{domain.name} {column.name}", grammar.wording.split)
        reverse = of_split(column.reverse, f"{domain.name} {column.name}", grammar.wording.split)
        vague = {m.group(1) for form in asks if (m := _VAGUE.match(form))}
        if vague & vague_taken:
            asks = [form for form in asks if not _VAGUE.match(form)]
            vague = set()
        vague_taken |= vague
        for r, name in enumerate(table.rows):
            value = shown[r]
            said = _FULL_DAYS.get(name, name)
            named = domain.naming.format(e=said)
            if named[:4].lower() == "the " and said[:4].lower() == "the ":
                named = said
            of = f"{named}'s {header}" if not named.startswith("the ") else f"the {header} of {named}"
            if domain.kind == "day":
                of = f"the {header} on {said}"
            direct = [agree(form.format(e=said, E=named, p=plural(said)), said) for form in some(rng, asks, 4)]
            label = header if len(header) > 2 and header[0].isalpha() else column.name
            of = of.replace(header, label)
            direct.append(
                pick(
                    rng,
                    [
                        f"what is {of}",
                        f"what's {of}",
                        f"what is the {label} of {named}",
                        f"which {label} does {named} have",
                        f"what does it say for {of}",
                        f"what {label} has {named}",
                    ],
                )
            )
            short = [f"{named} {label}", of, f"{label} {named}", f"{label} of {named}"]
            key = said.lower()
            aliases = tuple(f"{wh}|{key}" for wh in vague)
            found[r, number, False] = Question(f"{column.name}|{key}", value, direct, [of, of], short, [], aliases)
            if column.reverse and shown.count(value) == 1 and reverse and value not in ("none", "yes", "no"):
                back = [form.format(v=value) for form in some(rng, reverse, 3)]
                kind = domain.noun
                back.append(
                    pick(
                        rng,
                        [
                            f"{'who' if kind == 'who' else 'which ' + kind} has the {label} {value}",
                            f"{'whose' if kind == 'who' else 'which ' + kind + chr(39) + 's'} {label} is {value}",
                        ],
                    )
                )
                found[r, number, True] = Question(
                    f"by {column.name}|{value.lower()}", name, back, [], [], [], (f"who is|{value.lower()}",)
                )
    return found


_FULL_DAYS = {day[:3]: day for day in DAYS}


def of_split(forms: tuple[str, ...], where: str, split: str) -> list[str]:
    """Forms that the split may use; those of training where it has none."""
    mine = [form for form in forms if split_of(f"{where} {form}") == split]
    return mine or [form for form in forms if split_of(f"{where} {form}") == "train"] or list(forms)


def agree(text: str, name: str) -> str:
    """The question with its verb in the number of the name."""
    if name.endswith("s") and not name.endswith(("ss", "us")):
        for one, many in (
            ("does the ", "do the "),
            ("is the ", "are the "),
            ("was the ", "were the "),
            ("much ", "many "),
            ("does ", "do "),
        ):
            text = text.replace(one + name, many + name)
        return text
    return text.replace(f"many {name} ", f"much {name} ")


def some(rng, forms: list[str], count: int) -> list[str]:
    return forms if len(forms) <= count else [pick(rng, forms) for _ in range(count)]


def table(grammar: Grammar) -> list[Line]:
    """A table in any format, with a title or without, and the questions that each of its lines answers."""
    rng = grammar.rng
    drawn = draw_table(grammar)
    asked = questions(grammar, drawn)
    lines: list[Line] = []
    if rng.random() < 0.5:
        title = pick(rng, drawn.domain.titles)
        lines.append(
            (
                pick(
                    rng,
                    [
                        "{}:",
                        "{}",
                        "# {}",
                        "Here is the list. {}:",
                        "{}:",
                        "== {} ==",
                        "{} (updated)",
                        "I have this here:",
                        "Our table:",
                        "Remember this: {}",
                        "**{}**",
                        "from the {}:",
                    ],
                ).format(title),
                [],
            )
        )
    for text, cells in pick(rng, FORMATS)(rng, drawn):
        answered: list[Question] = []
        for r, c in cells:
            for by_value in (False, True):
                question = asked.get((r, c, by_value))
                if question and question.value in text and (not by_value or drawn.cells[r][c] in text):
                    answered.append(question)
        lines.append((text, answered))
    lines[-1][1].extend(_missing(grammar, drawn))
    return lines


def _missing(grammar: Grammar, table: Table) -> list[Question]:
    """Questions without a value: about another row, and about a column that the table does not have."""
    rng, domain, found = grammar.rng, table.domain, []
    names = [row.lower() for row in table.rows]
    for _ in range(2):
        column, name = pick(rng, table.columns), cell(rng, grammar.split, domain.kind)
        if name.lower() not in names and domain.kind != "day":
            asks = [form for form in column.asks if not _VAGUE.match(form)] or list(column.asks)
            found.append(_unanswered(rng, domain, column.name, asks, name))
        other = pick(rng, domain.columns)
        present = {form for c in table.columns for form in c.asks}
        asks = [form for form in other.asks if form not in present and not _VAGUE.match(form)]
        if other not in table.columns and asks:
            name = pick(rng, table.rows)
            found.append(_unanswered(rng, domain, other.name, asks, _FULL_DAYS.get(name, name)))
    return found


def _unanswered(rng, domain: Domain, column: str, asks: list[str], name: str) -> Question:
    named = domain.naming.format(e=name)
    direct = [agree(form.format(e=name, E=named, p=plural(name)), name) for form in some(rng, asks, 4)]
    return Question(f"{column}|{name.lower()}", "", direct)


# Formats -----------------------------------------------------------------------------------------------------------
