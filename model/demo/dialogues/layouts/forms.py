"""Documents about one thing: bookings, invoices, settings, profiles, receipts, recipes. A line is a field."""

import json
import re

from .. import names, texts
from ..clauses import Grammar
from ..phrases import Question, capital
from ..splits import pick
from .kinds import cell
from .tables import Line, agree, of_split, some

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


def receipt(grammar: Grammar) -> list[Line]:
    """A till receipt: what was bought, how much, the total, the change."""
    rng, split = grammar.rng, grammar.split
    shop = pick(
        rng,
        [
            names.word(rng, split) + " Market",
            cell(rng, split, "shop").upper(),
            names.word(rng, split),
            "RECEIPT",
            "Receipt",
            "Bill",
        ],
    )
    lines: list[Line] = [(shop, [])]
    kind = pick(rng, ["thing", "food", "dish"])
    bought: list[str] = []
    for _ in range(2 + int(rng.random() * 5)):
        item = cell(rng, split, kind)
        if item in bought:
            continue
        bought.append(item)
        count, price = int(rng.random() * 9) + 2, f"{int(rng.random() * 60) + 1}.{int(rng.random() * 100):02d}"
        form = pick(
            rng,
            [
                "{n} x {i} {p}",
                "{n} {i} {p}",
                "{i} x{n} {p}",
                "{i} {p}",
                "{i}   {p}",
                "{i}: {p}",
                "{i} .... {p}",
                "{n}x {i} @ {p}",
            ],
        )
        asks = [Question(f"price|{item}", price, some(rng, [f"how much was the {item}", f"what did the {item} cost", f"how much did I pay for the {item}", f"how much is the {item}", f"what was the price of the {item}", f"how much did we spend on {item}", f"how much did the {item} cost"], 4),
                         [f"how much the {item} was"], [f"{item} price", f"price of the {item}", item])]  # fmt: skip
        if "{n}" in form:
            asks.append(
                Question(
                    f"quantity|{item}",
                    str(count),
                    [
                        f"how many {item}s did I buy",
                        f"how many {item} were bought",
                        f"how many {item} are on the receipt",
                        f"how many {item}s did we get",
                    ],
                    [],
                    [f"number of {item}"],
                )
            )
        lines.append((form.format(n=count, i=item, p=price), asks))
    total = f"{int(rng.random() * 300) + 20}.{int(rng.random() * 100):02d}"
    for chance, labels, value, asks in (
        (0.25, "Subtotal|Sub-total", f"{int(rng.random() * 200) + 15}.{int(rng.random() * 100):02d}", "what is the subtotal|how much is it without tax|what was the subtotal"),
        (0.35, "Tax|VAT|incl. VAT|Sales tax", f"{int(rng.random() * 20) + 1}.{int(rng.random() * 100):02d}", "how much tax did I pay|how much was the tax|how much VAT is on the receipt|what is the tax"),
        (0.95, "Total|TOTAL|Sum|To pay|Total EUR|total|Grand total", total, "what is the total|what was the total|how much did I pay in total|how much is it all together|what's the sum|how much did it come to|how much did I spend|what's the total|how much was everything"),
        (0.3, "Cash|Paid|Given|Card", f"{int(rng.random() * 300) + 320}.00", "how much did I give|how much cash did I pay with|how much was paid"),
        (0.3, "Change|change|Back", f"{int(rng.random() * 20)}.{int(rng.random() * 100):02d}", "how much change did I get|what was the change|how much did I get back"),
        (0.3, "Date|date|Printed", cell(rng, split, "date"), "when was the receipt printed|what is the date of the receipt|when did I buy this|when was I there"),
        (0.3, "Cashier|Served by|You were served by", cell(rng, split, "given"), "who was the cashier|who served me|what was the cashier called|who was at the till"),
        (0.2, "Table|table", str(int(rng.random() * 40) + 1), "which table was it|at which table did we sit|what was our table number"),
        (0.2, "Tip|tip|Service", f"{int(rng.random() * 20) + 1}.00", "how much was the tip|how big was the tip|what did we tip"),
    ):  # fmt: skip
        if rng.random() < chance:
            label = pick(rng, labels.split("|"))
            key = labels.split("|", 1)[0].lower()
            lines.append(
                (
                    f"{label}{pick(rng, [' ', ': ', '   ', ' = '])}{value}",
                    [
                        Question(
                            f"{key}|receipt",
                            value,
                            some(rng, asks.split("|"), 4),
                            [],
                            [f"the {key}", key, f"receipt {key}"],
                            [],
                            (f"{key}|",),
                        )
                    ],
                )
            )
    return lines


def recipe(grammar: Grammar) -> list[Line]:
    """Ingredients with amounts, then the oven."""
    rng, split = grammar.rng, grammar.split
    dish = cell(rng, split, "dish")
    lines: list[Line] = [
        (pick(rng, ["{}", "Recipe: {}", "{}:", "# {}", "{} (serves 4)", "For the {}:"]).format(capital(dish)), [])
    ]
    form, used = (
        pick(rng, ["{a} {i}", "{a} {i}", "- {a} {i}", "{i}: {a}", "{i} {a}", "* {a} of {i}", "{i} ({a})"]),
        set(),
    )
    for _ in range(3 + int(rng.random() * 5)):
        item, amount = cell(rng, split, "food"), cell(rng, split, "recipe")
        if item in used:
            continue
        used.add(item)
        asks = [
            f"how much {item} do I need",
            f"how many {item} do I need",
            f"how much {item} goes in",
            f"how much {item} is in the {dish}",
            f"how much {item} should I take",
            f"what amount of {item} is it",
            f"how much {item} do I need for the {dish}",
        ]
        asks = [agree(ask, item) for ask in asks]
        lines.append(
            (
                form.format(a=amount, i=item),
                [
                    Question(
                        f"amount|{item}",
                        amount,
                        some(rng, asks, 4),
                        [f"how much {item} I need"],
                        [f"how much {item}", f"amount of {item}", item],
                    )
                ],
            )
        )
    for chance, text, value, asks in (
        (0.6, "Bake for {v}|Bake {v}|In the oven for {v}|Cook {v}|Leave it in the oven for {v}|Baking time: {v}", f"{int(rng.random() * 80) + 10} minutes", "how long does it bake|how long do I bake it|how long is it in the oven|for how long do I cook it|what is the baking time"),
        (0.6, "Heat the oven to {v}|Oven at {v}|Oven: {v}|Preheat the oven to {v}", f"{int(rng.random() * 16) * 10 + 120} {pick(rng, ['degrees', '°C', 'C'])}", "how hot is the oven|what temperature is the oven|how hot should the oven be|what do I set the oven to"),
        (0.4, "Serves {v}|For {v} people|Makes {v} portions|Portions: {v}", str(int(rng.random() * 20) + 2), "how many people is it for|how many portions is it|how many does it serve|for how many people is the recipe"),
        (0.3, "Let it rest for {v}|Chill for {v}|Rest: {v}", f"{int(rng.random() * 20) + 2} hours", "how long does it have to rest|how long do I chill it|how long does it rest"),
        (0.3, "From {v}'s kitchen|Recipe by {v}|Source: {v}", cell(rng, split, "given"), "who is the recipe from|whose recipe is it|who gave me the recipe"),
    ):  # fmt: skip
        if rng.random() < chance:
            lines.append(
                (
                    pick(rng, text.split("|")).format(v=value) + pick(rng, [".", ""]),
                    [Question(f"{asks.split('|')[0]}|", value, asks.split("|"), [], [])],
                )
            )
    return lines
