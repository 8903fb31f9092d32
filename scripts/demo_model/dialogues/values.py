"""Values of every kind: with thousands of possibilities or more, most of them in several spellings."""

from collections.abc import Callable
from random import Random

from . import everyday, names
from .lexicon import (
    ADJECTIVES,
    ANIMALS,
    COLOURS,
    COMPANIES,
    CONTAINERS,
    COUNTRIES,
    DAYS,
    FOODS,
    INSTRUMENTS,
    JOBS,
    LANGUAGES,
    MATERIALS,  # fmt: skip
    MONTHS,
    OBJECTS,
    ORGS,
    PLACES,
    SPORTS,
    STREETS,
    SUBJECTS,
    SURFACES,
    UNITS,
)
from .spellings import LETTERS, below, code, date, mail, number, password, phone, price, time, url
from .splits import pick

Maker = Callable[[Random, str], str]


def _person(rng, split) -> str:
    style = rng.random()
    if style < 0.45:
        return names.given(rng, split)
    if style < 0.75:
        return f"{names.given(rng, split)} {names.surname(rng, split)}"
    if style < 0.85:
        return f"{pick(rng, ['Dr', 'Dr.', 'Mr', 'Mrs', 'Ms', 'Professor', 'Doctor', 'Captain'])} {names.surname(rng, split)}"
    if style < 0.93:
        return f"{names.given(rng, split)} from {pick(rng, ['accounting', 'sales', 'next door', 'the gym', 'IT', 'work', 'the third floor', 'school'])}"
    return names.given(rng, split) + " and " + names.given(rng, split)


def _phrase(rng, split) -> str:
    style = rng.random()
    noun = pick(rng, OBJECTS) if rng.random() < 0.85 else names.word(rng, split).lower()
    if style < 0.6:
        return f"{pick(rng, ADJECTIVES)} {noun}"
    if style < 0.75:
        return f"{names.word(rng, split)} {noun}"
    return f"{pick(rng, ADJECTIVES)} {pick(rng, ADJECTIVES)} {noun}" if style < 0.85 else noun


def _title(rng, split) -> str:
    return pick(rng, [
        f"{pick(rng, ADJECTIVES).title()} {pick(rng, OBJECTS).title()}", f"The {pick(rng, OBJECTS).title()} of {names.town(rng, split)}",
        f"Letters to {names.given(rng, split)}", f"{names.word(rng, split)}", f"The {pick(rng, ADJECTIVES).title()} {pick(rng, JOBS).title()}",
    ])  # fmt: skip


def _list(items) -> Maker:
    def make(rng, split) -> str:
        chosen = [
            pick(rng, items) if rng.random() < 0.9 else names.word(rng, split).lower() for _ in range(1 + below(rng, 3))
        ]
        return chosen[0] if len(chosen) == 1 else ", ".join(chosen[:-1]) + " and " + chosen[-1]

    return make


def _spot(rng, split) -> str:
    """Where a thing is, with its preposition."""
    style = rng.random()
    owner = pick(rng, ["the", "the", "the", "my", "our", f"{names.given(rng, split)}'s"])
    adjective = pick(rng, ADJECTIVES) + " " if rng.random() < 0.45 else ""
    if style < 0.35:
        return f"{pick(rng, ['in', 'in', 'inside', 'at the back of', 'at the bottom of'])} {owner} {adjective}{pick(rng, CONTAINERS)}"
    if style < 0.55:
        return f"{pick(rng, ['on', 'on', 'on top of', 'under'])} {owner} {adjective}{pick(rng, SURFACES)}"
    if style < 0.8:
        return f"{pick(rng, ['under', 'behind', 'next to', 'near', 'beside', 'in front of', 'above', 'between the door and', 'opposite'])} {owner} {adjective}{pick(rng, OBJECTS)}"
    if style < 0.9:
        return f"{pick(rng, ['on', 'in', 'at'])} {pick(rng, ['level', 'floor', 'shelf', 'row', 'bay', 'deck', 'box', 'rack', 'locker', 'room'])} {below(rng, 60) + 1}{pick(rng, ['', '', 'A', 'B', 'C'])}"
    return f"{pick(rng, ['at', 'behind', 'near', 'in', 'outside'])} {place(rng, split)}"


def place(rng, split) -> str:
    style = rng.random()
    if style < 0.5:
        return f"the {pick(rng, PLACES)}"
    if style < 0.75:
        return org(rng, split)
    return f"the {pick(rng, ADJECTIVES)} {pick(rng, PLACES)}" if style < 0.9 else names.town(rng, split)


def org(rng, split) -> str:
    style = rng.random()
    if style < 0.6:
        return f"{names.word(rng, split)} {pick(rng, ORGS)}"
    if style < 0.8:
        return f"the {names.word(rng, split)} {pick(rng, ORGS)}"
    return (
        f"{pick(rng, ORGS)} {names.word(rng, split)}"
        if style < 0.9
        else f"{names.given(rng, split)}'s {pick(rng, ORGS)}"
    )


def _room(rng, split) -> str:
    style = rng.random()
    if style < 0.5:
        return f"{pick(rng, ['room', 'room', 'Room', 'hall', 'office', 'lab', 'studio', 'classroom', 'building', 'ward'])} {below(rng, 900) + 1}"
    if style < 0.75:
        return f"room {pick(rng, LETTERS)}{below(rng, 40) + 1}"
    return f"the {pick(rng, [*COLOURS, names.word(rng, split)])} room"


def _ordinal(rng, split) -> str:
    n = below(rng, 30) + 1
    return f"{n}{'th' if 4 <= n <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def _floor(rng, split) -> str:
    style = rng.random()
    if style < 0.45:
        return f"{pick(rng, ['level', 'floor', 'deck', 'storey'])} {below(rng, 40) + 1}"
    return f"the {pick(rng, ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'top', 'ground', 'upper', 'lower'])} floor"


def _measure(*units: str):
    def make(rng, split) -> str:
        return f"{below(rng, 900) + 2}{pick(rng, ['', '', '', '.5'])} {pick(rng, units)}"

    return make


def _choice(items):
    return lambda rng, split: pick(rng, items) if rng.random() < 0.93 else names.word(rng, split)


_MAKERS = {
    "time": time, "date": date, "price": price, "code": code, "password": password, "number": number, "phone": phone,
    "mail": mail, "url": url, "person": _person, "phrase": _phrase, "title": _title, "spot": _spot, "place": place, "org": org,
    "room": _room, "ordinal": _ordinal, "floor": _floor, "things": _list([f"{o}s" for o in OBJECTS if not o.endswith("s")]),
    "foods": _list(FOODS), "animals": _list([f"{a}s" for a in ANIMALS]), "people": _list([n for n in names.GIVEN]),
    "town": names.town, "word": names.word,
    "year": lambda rng, split: str(1850 + below(rng, 200)),
    "count": lambda rng, split: str(below(rng, 98) + 2) if rng.random() < 0.8 else pick(rng, "two three four five six seven eight nine ten twelve twenty".split()),
    "day": lambda rng, split: pick(rng, DAYS), "month": lambda rng, split: pick(rng, MONTHS),
    "daytime": lambda rng, split: f"{pick(rng, DAYS)} at {time(rng, split)}",
    "address": lambda rng, split: f"{below(rng, 300) + 1} {pick(rng, [names.word(rng, split), pick(rng, OBJECTS).title()])} {pick(rng, STREETS)}",
    "street": lambda rng, split: f"{pick(rng, [names.word(rng, split), pick(rng, OBJECTS).title()])} {pick(rng, STREETS)}",
    "company": lambda rng, split: f"{names.word(rng, split)}{pick(rng, ['', ' ' + pick(rng, COMPANIES)])}",
    "team": lambda rng, split: f"the {names.word(rng, split)} {pick(rng, ['Hawks', 'Bears', 'Rovers', 'Wolves', 'Comets', 'Choir', 'Band', 'Owls'])}",
    "seat": lambda rng, split: f"{pick(rng, ['seat', 'row', 'seat'])} {below(rng, 60) + 1}{pick(rng, ['', *LETTERS[:6]])}",
    "gate": lambda rng, split: f"{pick(rng, ['gate', 'platform', 'track', 'terminal', 'stop', 'pier'])} {pick(rng, ['', *LETTERS[:5]])}{below(rng, 60) + 1}",
    "vehicle": lambda rng, split: pick(rng, ["train", "bus", "car", "bike", "boat", "taxi", "plane", "ferry", "night train", "tram"]),
    "drink": lambda rng, split: pick(rng, ["tea", "coffee", "apple juice", "milk", "lemonade", "water", "hot chocolate", "green tea", "cider", "cocoa", f"{pick(rng, FOODS)} juice"]),
    "colour": _choice(COLOURS), "material": _choice(MATERIALS), "food": _choice(FOODS), "language": _choice(LANGUAGES),
    "subject": _choice(SUBJECTS), "sport": _choice(SPORTS), "instrument": _choice(INSTRUMENTS), "job": _choice(JOBS),
    "animal": _choice(ANIMALS), "country": _choice(COUNTRIES),
    "weight": _measure("kilos", "grams", "pounds", "kg", "tons"), "length": _measure("metres", "inches", "feet", "centimetres", "cm", "m"),
    "duration": _measure("minutes", "hours", "days", "weeks"), "quantity": _measure(*UNITS),
    "temperature": lambda rng, split: f"{below(rng, 250)} {pick(rng, ['degrees', '°C', 'C', 'degrees Celsius'])}",
    "percent": lambda rng, split: f"{below(rng, 100)}{pick(rng, ['%', ' percent', '.5%'])}",
    "version": lambda rng, split: f"{pick(rng, ['', 'v'])}{below(rng, 20)}.{below(rng, 20)}{pick(rng, ['', f'.{below(rng, 10)}'])}",
    "ip": lambda rng, split: ".".join(str(below(rng, 255)) for _ in range(4)),
}  # fmt: skip
TYPES = tuple(sorted(_MAKERS))  # of attributes
_MAKERS |= {kind: maker for kind, maker in everyday.MAKERS.items() if kind not in _MAKERS}
_ANY = (
    "code",
    "password",
    "number",
    "word",
    "person",
    "phrase",
    "price",
    "time",
    "date",
    "town",
    "mail",
    "phone",
    "quantity",
    "percent",
    "title",
    "room",
    "colour",
    "version",
    "url",
    "street",
)
_MAKERS["anyvalue"] = lambda rng, split: value(rng, split, pick(rng, _ANY))
# Types of an attribute's value by a word in its name; the first that matches.
_BY_WORD = (
    ("wifi password", "password"), ("password", "password"), ("colour", "colour"), ("time", "time"), ("date", "date"), ("deadline", "date"),
    ("birthday", "date"), ("email", "mail"), ("URL", "url"), ("domain", "url"), ("IP", "ip"), ("phone", "phone"), ("fax", "phone"),
    ("code", "code"), ("PIN", "code"), ("reference", "code"), ("number", "code"), ("plate", "code"), ("gate", "gate"), ("platform", "gate"),
    ("seat", "seat"), ("room", "room"), ("floor", "floor"), ("address", "address"), ("street", "street"), ("food", "food"), ("dessert", "food"),
    ("main course", "food"), ("ingredient", "food"), ("drink", "drink"), ("song", "title"), ("film", "title"), ("book", "title"), ("title", "title"),
    ("price", "price"), ("cost", "price"), ("fee", "price"), ("rent", "price"), ("salary", "price"), ("budget", "price"), ("bill", "price"),
    ("deposit", "price"), ("balance", "price"), ("total", "price"), ("tip", "price"), ("discount", "percent"), ("rate", "percent"),
    ("temperature", "temperature"), ("point", "temperature"), ("weight", "weight"), ("height", "length"), ("length", "length"), ("width", "length"),
    ("depth", "length"), ("distance", "length"), ("range", "length"), ("elevation", "length"), ("duration", "duration"), ("warranty", "duration"),
    ("battery life", "duration"), ("population", "number"), ("score", "number"), ("age", "count"), ("size", "count"), ("version", "version"),
    ("material", "material"), ("language", "language"), ("country", "country"), ("city", "town"), ("capital", "town"), ("job", "job"),
    ("name", "person"), ("nickname", "word"), ("mascot", "animal"), ("breed", "word"), ("brand", "word"),
    *((who, "person") for who in ("owner", "author", "editor", "director", "manager", "captain", "coach", "leader", "chair", "host", "sponsor",
      "contact", "client", "winner", "supervisor", "mentor", "tutor", "landlord", "neighbour", "plumber", "dentist", "vet", "hairdresser", "founder")),
)  # fmt: skip


def type_for(rng, attribute: str) -> str:
    """A plausible type of value for an attribute; now and then any type, so that nothing but the text decides."""
    if rng.random() < 0.12:
        return pick(rng, TYPES)
    return next((kind for word, kind in _BY_WORD if word in attribute), None) or pick(
        rng, ("phrase", "number", "word", "code", "quantity", "title")
    )


def value(rng, split: str, kind: str) -> str:
    """A value of the type, with names of the split."""
    return _MAKERS[kind](rng, split)
