"""Key and value lines, tables and JSON of attributes that are drawn anew: any word may be a column."""

import json

from .. import names, values
from ..clauses import Grammar
from ..lexicon import ATTRIBUTES, DAYS, OBJECTS
from ..phrases import Phrase, Question, article, capital
from ..splits import pick
from .drawn import Line


def _attribute_question(grammar: Grammar, noun: str, owner: Phrase | None, value: str, kind: str) -> Question:
    if owner is not None:
        return grammar.attribute(owner, noun, kind, value).questions[0]
    wording, name = grammar.wording, f"the {noun}"  # an attribute of nobody; the grammar would draw an owner
    forms = [*wording.attribute_questions, *wording.typed_questions.get(kind, ())]
    direct = [form.format(np=name, noun=noun) for form in forms]
    return Question(
        f"{noun}|", value, direct, [form.format(np=name) for form in wording.attribute_indirect], [name, noun]
    )


def _nouns(grammar: Grammar, count: int) -> list[str]:
    chosen: list[str] = []
    while len(chosen) < count:
        noun = pick(grammar.rng, ATTRIBUTES) if grammar.rng.random() < 0.8 else grammar.attribute_noun()
        if noun not in chosen:
            chosen.append(noun)
    return chosen


def key_values(grammar: Grammar) -> list[Line]:
    """ "wifi password: kettle42", one a line, of one owner or of nobody."""
    rng = grammar.rng
    owner = grammar.phrase(pick(rng, ("person", "org", "thing"))) if rng.random() < 0.4 else None
    separator = pick(rng, [": ", ": ", " = ", " - ", ":\t", " => ", "  "])
    bullet = pick(rng, ["", "", "- ", "* ", "• "])
    lines: list[Line] = [(f"{capital(owner.text)}{pick(rng, [':', '', ' -'])}", [])] if owner else []
    for noun in _nouns(grammar, 2 + int(rng.random() * 6)):
        kind = values.type_for(rng, noun)
        value = grammar.value(kind)
        shown = pick(rng, [noun, capital(noun)])
        lines.append((f"{bullet}{shown}{separator}{value}", [_attribute_question(grammar, noun, owner, value, kind)]))
    return lines


def table(grammar: Grammar) -> list[Line]:
    """Rows of owners, columns of attributes."""
    rng = grammar.rng
    columns = _nouns(grammar, 1 + int(rng.random() * 3))
    kinds = [values.type_for(rng, noun) for noun in columns]
    maker = pick(
        rng,
        [
            lambda: names.given(rng, grammar.split),
            lambda: names.word(rng, grammar.split),
            lambda: pick(rng, OBJECTS),
            lambda: pick(rng, DAYS),
        ],
    )
    rows: list[str] = []
    for _ in range(2 + int(rng.random() * 7)):
        name = maker()
        if name not in rows:
            rows.append(name)
    join = pick(rng, [" | ", ";", ",", "\t", " - ", " | "])
    head = pick(rng, ["name", "item", "who", "Name", ""])
    lines: list[Line] = [(join.join([head, *columns]), [])]
    if join == " | " and rng.random() < 0.5 and lines:
        lines = [(f"| {lines[0][0]} |", []), ("|" + "---|" * (len(columns) + 1), [])]
    for name in rows:
        cells = [grammar.value(kind) for kind in kinds]
        if join in (",", ";"):
            cells = [cell.replace(",", "") for cell in cells]
        owner = Phrase(name, name.lower(), "person")
        text = join.join([name, *cells])
        if len(lines) > 1 and lines[1][0].startswith("|-"):
            text = f"| {text} |"
        lines.append(
            (
                text,
                [
                    _attribute_question(grammar, noun, owner, cell, kind)
                    for noun, cell, kind in zip(columns, cells, kinds, strict=True)
                ],
            )
        )
    return lines


def json_lines(grammar: Grammar) -> list[Line]:
    """An object, or one object a line."""
    rng = grammar.rng
    nouns = _nouns(grammar, 2 + int(rng.random() * 4))
    keys = [noun.replace(" ", pick(rng, ["_", "_", " "])) for noun in nouns]
    if rng.random() < 0.5:
        lines: list[Line] = [("{", [])]
        for noun, key in zip(nouns, keys, strict=True):
            kind = values.type_for(rng, noun)
            value = grammar.value(kind)
            lines.append(
                (
                    f'  "{key}": {json.dumps(value, ensure_ascii=False)},',
                    [_attribute_question(grammar, noun, None, value, kind)],
                )
            )
        return [*lines, ("}", [])]
    lines = []
    for _ in range(2 + int(rng.random() * 4)):
        name = names.given(rng, grammar.split)
        owner = Phrase(name, name.lower(), "person")
        record, questions = {"name": name}, []
        for noun, key in zip(nouns[:3], keys, strict=False):
            kind = values.type_for(rng, noun)
            record[key] = grammar.value(kind)
            questions.append(_attribute_question(grammar, noun, owner, record[key], kind))
        lines.append((json.dumps(record, ensure_ascii=False), questions))
    return lines


def notes(grammar: Grammar) -> list[Line]:
    """Headed notes: a heading, then "an X of Y"."""
    rng = grammar.rng
    owner = grammar.phrase(pick(rng, ("org", "event", "thing")))
    lines: list[Line] = [(f"# {capital(owner.text)}", [])]
    for noun in _nouns(grammar, 2 + int(rng.random() * 4)):
        kind = values.type_for(rng, noun)
        value = grammar.value(kind)
        lines.append(
            (
                pick(
                    rng,
                    [
                        f"{capital(noun)} {value}",
                        f"{capital(article(noun))} of {value}",
                        f"{capital(noun)} is {value}",
                        f"- {noun}: {value}",
                    ],
                ),
                [_attribute_question(grammar, noun, owner, value, kind)],
            )
        )
    return lines
