"""Documents about one thing: bookings, invoices, settings, profiles, receipts, recipes. A line is a field."""

import json
import re

from .. import texts
from ..clauses import Grammar
from ..phrases import Question, capital
from ..splits import pick
from .drawn import Line
from .kinds import cell
from .tables import of_split, some

#     # name | titles
#     field: labels | kind of value | questions


def _parse() -> list[tuple[str, list[str], list[tuple[str, list[str], str, tuple[str, ...]]]]]:
    forms = []
    for block in texts.read("forms").strip().removeprefix("# ").split("\n# "):
        head, *lines = block.splitlines()
        name, titles = (part.strip() for part in head.split("|"))
        fields = []
        for line in lines:
            label, rest = line.split(":", 1)
            labels, kind, asks = (part.strip() for part in rest.split(" | "))
            fields.append(
                (label, [x.strip() for x in labels.split(",")], kind, tuple(x.strip() for x in asks.split(";")))
            )
        forms.append((name, [t.strip() for t in titles.split(";")], fields))
    return forms


FORMS = _parse()


def form(grammar: Grammar) -> list[Line]:
    """A document of one kind, in one of the usual formats."""
    rng = grammar.rng
    name, titles, fields = pick(rng, FORMS)
    chosen = [field for field in fields if rng.random() < 0.6] or fields[:2]
    if rng.random() < 0.3:
        rng.shuffle(chosen)
    computer = "settings" in name
    style = rng.random()
    bullet = pick(rng, ["", "", "", "- ", "* "])
    equals = (
        pick(rng, ["=", " = ", ": ", "="])
        if computer
        else pick(rng, [": ", ": ", ": ", " - ", " = ", ":  ", ":\t", " ", ". . . ", " | "])
    )
    lines: list[Line] = []
    if rng.random() < 0.6:
        lines.append(
            (
                pick(rng, ["{}", "{}:", "# {}", "*** {} ***", "{}", "{}\n---"])
                .format(pick(rng, titles))
                .split("\n")[0],
                [],
            )
        )
    is_json = style < (0.25 if computer else 0.1)
    if is_json:
        lines.append(("{", []))
    inline = not is_json and style > 0.86
    if inline:
        bullet = ""
    parts: list[str] = []
    asked: list[Question] = []
    for number, (label, labels, kind, asks) in enumerate(chosen):
        shown = pick(rng, labels)
        value = cell(rng, grammar.split, kind, rng.random())
        forms = of_split(asks, f"{name} {label}", grammar.wording.split)
        plain = shown if shown.isalpha() and not shown.isupper() else label
        generic = pick(
            rng,
            [
                f"what is the {plain}",
                f"what's the {plain}",
                f"what does it say for {plain}",
                f"what is the {plain} of the {name}",
                f"what's the {name}'s {plain}",
            ],
        )
        question = Question(
            f"{label}|form",
            value,
            [*some(rng, forms, 4), generic],
            [f"what the {plain} is"],
            [plain, f"{name} {plain}", f"the {plain}"],
            [],
            (f"{label}|{name}", f"{label}|"),
        )
        if is_json:
            comma = "" if number == len(chosen) - 1 else ","
            key = re.sub(r"[ .-]+", "_", shown.strip(".")).lower()
            text = f'  "{key}": {json.dumps(int(value) if value.isdigit() and value[0] != "0" else value, ensure_ascii=False)}{comma}'
        elif equals == " | ":
            text = f"| {shown} | {value} |"
        else:
            text = f"{bullet}{shown if computer or inline else capital(shown)}{equals}{value}"
        if inline:
            parts.append(text)
            asked.append(question)
        else:
            lines.append((text, [question]))
    if is_json:
        lines.append(("}", []))
    if inline:
        lines.append((pick(rng, [", ", "; ", " | ", ". "]).join(parts), asked))
    return lines
