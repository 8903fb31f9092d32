"""Things of everyday scenes: presents, shopping, servers, parking spots, errands."""

from . import names
from .everyday_words import (
    NUMBERS,
    OCCUPIED,
)
from .lexicon import (
    ADJECTIVES,
    ATTRIBUTES,
    COLOURS,
    FOODS,
    OBJECTS,
)
from .splits import pick


def below(rng, n: int) -> int:
    return int(rng.random() * n)


_SINGULAR = [noun for noun in OBJECTS if not noun.endswith("s") or noun.endswith("ss")]


def any_noun(rng, split) -> str:
    return pick(rng, _SINGULAR) if rng.random() < 0.88 else names.word(rng, split).lower()


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def gift(rng, split) -> str:
    draw, noun = rng.random(), any_noun(rng, split)
    if draw < 0.35 and not noun.endswith("s"):
        return with_article(noun)
    if draw < 0.7 and not noun.endswith("s"):
        return with_article(f"{pick(rng, ADJECTIVES)} {noun}")
    return pick(
        rng,
        [
            f"a box of {pick(rng, FOODS)}",
            f"tickets for {names.word(rng, split)}",
            f"a book about {any_noun(rng, split)}",
            f"{pick(rng, NUMBERS)} {pick(rng, OBJECTS)}s" if not noun.endswith("s") else f"new {noun}",
            f"a trip to {names.town(rng, split)}",
            f"{pick(rng, COLOURS)} {pick(rng, ['socks', 'gloves', 'shoes', 'earrings', 'roses', 'candles'])}",
        ],
    )


def shopping(rng, split) -> str:
    def item() -> str:
        draw, food = rng.random(), pick(rng, FOODS) if rng.random() < 0.75 else any_noun(rng, split)
        if draw < 0.65:
            return food
        return (
            f"{below(rng, 12) + 2} {food}"
            if draw < 0.72
            else pick(
                rng,
                [
                    f"a kilo of {food}",
                    f"some {food}",
                    f"{pick(rng, NUMBERS)} bags of {food}",
                    f"{below(rng, 900) + 100} g of {food}",
                    f"a box of {food}",
                ],
            )
        )

    items = [item() for _ in range(1 + below(rng, 4))]
    if len(items) == 1:
        return items[0]
    last = pick(rng, [" and ", " and ", ", ", " & "])
    return ", ".join(items[:-1]) + last + items[-1]


def line(rng, split) -> str:
    number = below(rng, 300) + 1
    return pick(
        rng,
        [
            f"bus {number}",
            f"line {number}",
            f"tram {number}",
            f"the {number}",
            f"the {number} bus",
            f"the U{below(rng, 9) + 1}",
            f"the {pick(rng, COLOURS)} line",
            f"the S{below(rng, 30) + 1}",
            f"the {names.word(rng, split)} Express",
            f"train {number}",
        ],
    )


def dose(rng, split) -> str:
    return pick(
        rng,
        [
            f"{below(rng, 90) * 10 + 10} mg",
            f"{below(rng, 50) + 1} ml",
            f"{pick(rng, ['one', *NUMBERS[:5]])} tablets".replace("one tablets", "one tablet"),
            f"{below(rng, 30) + 2} drops",
            f"{below(rng, 9) + 2} pills",
            "half a tablet" if rng.random() < 0.3 else f"{below(rng, 95) + 5} units",
            f"{below(rng, 12) + 2} spoonfuls",
        ],
    )


def several_names(rng, split) -> str:
    chosen = [names.given(rng, split) for _ in range(2 + below(rng, 3))]
    return ", ".join(chosen[:-1]) + " and " + chosen[-1]


def title(rng, split) -> str:
    return (
        f"{pick(rng, ['Mr', 'Mr', 'Mrs', 'Ms', 'Dr', 'Herr', 'Frau', 'Madame'])} {names.surname(rng, split)}"
        if rng.random() < 0.5
        else names.given(rng, split)
    )


def server(rng, split) -> str:
    kind = pick(
        rng,
        [
            "server",
            "database",
            "gateway",
            "cache",
            "router",
            "printer",
            "backend",
            "proxy",
            "host",
            "cluster",
            "service",
            "bot",
        ],
    )
    draw, number = rng.random(), below(rng, 40) + 1
    if draw < 0.35:
        return f"the {names.word(rng, split)} {kind}"
    if draw < 0.6:
        return f"the {pick(rng, ['mail', 'web', 'test', 'build', 'staging', 'backup', 'file', 'print', 'login', 'game'])} {kind}"
    return f"{kind}-{number}" if draw < 0.8 else f"{names.word(rng, split).lower()}{pick(rng, ['', '-', '0'])}{number}"


def parking(rng, split) -> str:
    level = pick(
        rng,
        [
            f"{below(rng, 9) + 1}",
            f"{pick(rng, 'ABCDEFG')}",
            f"-{below(rng, 4) + 1}",
            f"{pick(rng, 'ABCDEFG')}{below(rng, 90) + 1}",
        ],
    )
    return pick(
        rng,
        [
            f"on level {level}",
            f"on floor {level}",
            f"in row {level}",
            f"in spot {below(rng, 400) + 1}",
            f"on deck {level}",
            f"in section {level}",
            f"on {names.word(rng, split)} Street",
            f"behind the {pick(rng, OCCUPIED)}",
            f"in front of the {pick(rng, OCCUPIED)}",
            f"next to the {pick(rng, OCCUPIED)}",
            f"on level {level}, spot {below(rng, 200) + 1}",
            f"in bay {below(rng, 90) + 1}",
            f"under the {pick(rng, ['bridge', 'big oak', 'lamp post', 'old tree', 'railway arch'])}",
        ],
    )


def placename(rng, split) -> str:
    return names.word(rng, split) + pick(rng, ["", "", "", "ia", "land", "stan"])


def plain_noun(rng, split) -> str:
    draw = rng.random()
    if draw < 0.6:
        return pick(rng, ATTRIBUTES)
    if draw < 0.75:
        return names.word(rng, split).lower()
    kind = pick(
        rng,
        [
            "code",
            "number",
            "name",
            "password",
            "size",
            "date",
            "price",
            "colour",
            "time",
            "address",
            "limit",
            "count",
            "title",
            "key",
            "phone",
            "bill",
            "ID",
            "word",
        ],
    )
    return f"{any_noun(rng, split)} {kind}" if draw < 0.9 else f"{pick(rng, ADJECTIVES)} {any_noun(rng, split)}"


def spoken(rng, split) -> str:
    draw = rng.random()
    if draw < 0.3:
        return names.word(rng, split).lower()
    if draw < 0.55:
        return f"{pick(rng, ADJECTIVES)} {any_noun(rng, split)}"
    return f"{any_noun(rng, split)} and {any_noun(rng, split)}" if draw < 0.7 else any_noun(rng, split)
