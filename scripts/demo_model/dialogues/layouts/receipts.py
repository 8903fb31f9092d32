"""Receipts and recipes: lines with an amount and a thing."""

from .. import names
from ..clauses import Grammar
from ..phrases import Question, capital
from ..splits import pick
from .drawn import Line
from .kinds import cell
from .tables import agree, some


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
