"""Values that cannot be guessed: times, prices, codes, names and word pairs, with thousands of possibilities or more."""

from . import names
from .splits import draw, pick
from .words import ADJECTIVES, MONTHS, NOUNS

_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_STREETS = "Street|Road|Lane|Avenue|Square|Alley|Court|Hill".split("|")


def _time(rng) -> str:
    hour, minute = int(rng.random() * 24), int(rng.random() * 60)
    style = rng.random()
    if style < 0.6:
        return f"{hour}:{minute:02d}"
    if style < 0.75:
        return f"{hour:02d}:{minute:02d}"
    return f"{hour % 12 + 1}:{minute:02d} {'am' if hour < 12 else 'pm'}"


def _price(rng) -> str:
    amount = int(rng.random() ** 2 * 3000) + 2
    style = rng.random()
    if style < 0.3:
        return f"${amount}.{int(rng.random() * 100):02d}"
    if style < 0.5:
        return f"${amount}"
    if style < 0.8:
        return f"{amount} {pick(rng, ['euros', 'dollars', 'pounds', 'crowns', 'francs'])}"
    return f"{amount}.{int(rng.random() * 100):02d} {pick(rng, ['euros', 'dollars', 'pounds'])}"


def _date(rng) -> str:
    day, month = int(rng.random() * 28) + 1, pick(rng, MONTHS)
    style = rng.random()
    if style < 0.4:
        return f"{day} {month}"
    if style < 0.6:
        return f"{month} {day}"
    return f"{day} {month} {1950 + int(rng.random() * 100)}"


def _code(rng) -> str:
    letters = "".join(pick(rng, _LETTERS) for _ in range(1 + int(rng.random() * 3)))
    digits = int(rng.random() * 9000) + 100
    return pick(rng, [f"{letters}{digits}", f"{letters}-{digits}", f"{digits}-{letters}", f"{digits}{letters}"])


def _number(rng) -> str:
    size = rng.random()
    if size < 0.5:
        return str(int(rng.random() * 980) + 13)
    return str(int(rng.random() * 9000) + 1000) if size < 0.8 else str(int(rng.random() * 90000) + 10000)


def _phone(rng) -> str:
    digits = [f"{int(rng.random() * 100):02d}" for _ in range(4)]
    return pick(rng, ["-", " "]).join(digits[: 3 + (rng.random() < 0.4)])


def _measure(units):
    return lambda rng: f"{int(rng.random() * 900) + 3}{pick(rng, ['', '', '.5'])} {pick(rng, units)}"


def _pair(rng) -> str:
    first, second = pick(rng, ADJECTIVES), pick(rng, NOUNS)
    style = rng.random()
    return (
        f"{first} {second}"
        if style < 0.6
        else f"{first}-{second}"
        if style < 0.8
        else f"{first} {second} {pick(rng, NOUNS)}"
    )


_PLAIN = {
    "time": _time, "price": _price, "date": _date, "code": _code, "number": _number, "phone": _phone, "pair": _pair,
    "year": lambda rng: str(1500 + int(rng.random() * 550)),
    "weight": _measure(["kilos", "grams", "pounds", "tons"]),
    "length": _measure(["metres", "inches", "feet", "centimetres"]),
    "duration": _measure(["minutes", "hours", "days", "weeks"]),
    "room": lambda rng: pick(rng, ["room", "box", "row", "bay", "desk", "shelf", "locker"]) + f" {int(rng.random() * 900) + 10}",
    "spot": lambda rng: f"{pick(rng, ['in', 'under', 'behind', 'near', 'on'])} the {pick(rng, ADJECTIVES)} {pick(rng, NOUNS)}",
}  # fmt: skip
# Values with an invented word, which belongs to the split.
_NAMED = {
    "person": lambda rng, split: f"{names.word(rng, split)} {names.word(rng, split)}",
    "word": lambda rng, split: names.word(rng, split),
    "town": lambda rng, split: names.entity(rng, split, "town"),
    "company": lambda rng, split: names.entity(rng, split, "company"),
    "place": lambda rng, split: names.entity(rng, split, "place"),
    "address": lambda rng, split: f"{int(rng.random() * 400) + 1} {names.word(rng, split)} {pick(rng, _STREETS)}",
    "mail": lambda rng, split: (
        f"{names.word(rng, split).lower()}@{names.word(rng, split).lower()}.{pick(rng, ['com', 'org', 'net'])}"
    ),
}
TYPES = sorted([*_PLAIN, *_NAMED])


def value(rng, split: str, kind: str) -> str:
    """A value of the type that belongs to the split."""
    if kind in _NAMED:
        return _NAMED[kind](rng, split)
    return draw(rng, split, _PLAIN[kind])
