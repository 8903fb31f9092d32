"""What the links of questions of two steps name: people, places, vehicles, and values that nothing else has."""

from collections.abc import Callable

from . import names, values
from .lexicon import ADJECTIVES, ANIMALS, COLOURS, OBJECTS, PLACES
from .splits import pick

_VEHICLES = (
    "van",
    "truck",
    "bike",
    "scooter",
    "Fiat",
    "Volvo",
    "Ford",
    "Skoda",
    "Mini",
    "jeep",
    "Toyota",
    "bus",
    "Tesla",
    "Audi",
    "motorbike",
)


def below(rng, n: int) -> int:
    return int(rng.random() * n)


def _org(rng, split: str) -> str:
    return (
        values.org(rng, split)
        if rng.random() < 0.4
        else values.value(rng, split, "company")
        if rng.random() < 0.6
        else names.word(rng, split)
    )


def _room(rng, split: str) -> str:
    style = rng.random()
    if style < 0.4:
        return f"the {pick(rng, ('attic', 'cellar', 'garage', 'shed', 'kitchen', 'pantry', 'office', 'basement', 'library', 'workshop', 'studio', 'lobby', 'barn', 'chapel', 'lab', 'canteen', 'gym', 'archive'))}"
    if style < 0.7:
        return f"room {below(rng, 400) + 1}"
    return (
        f"the {pick(rng, (*COLOURS[:9], names.word(rng, split), names.word(rng, split), 'Maple', 'Oak', 'Lake'))} room"
    )


def _group(rng, split: str) -> str:
    return pick(
        rng,
        [
            f"the {pick(rng, COLOURS)} group",
            f"group {below(rng, 40) + 1}",
            f"class {below(rng, 12) + 1}{pick(rng, 'abcd')}",
            f"the {names.word(rng, split)} group",
            f"team {names.word(rng, split)}",
            f"the {pick(rng, ANIMALS)} group",
        ],
    )


def _line(rng, split: str) -> str:
    return f"{pick(rng, ['bus', 'tram', 'the', 'train', 'line', 'ferry'])} {pick(rng, ['', '', 'IC ', 'S', 'RE ', 'N'])}{below(rng, 300) + 1}"


def _vehicle(rng, split: str) -> str:
    make = pick(rng, _VEHICLES) if rng.random() < 0.7 else names.word(rng, split)
    return f"the {pick(rng, COLOURS if rng.random() < 0.6 else ADJECTIVES)} {make}"


def _box(rng, split: str) -> str:
    return f"the {pick(rng, COLOURS if rng.random() < 0.5 else ADJECTIVES)} {pick(rng, ('box', 'bag', 'basket', 'drawer', 'suitcase', 'safe', 'trunk', 'tin', 'cupboard', 'crate', 'backpack', 'toolbox', 'folder'))}"


def _flight(rng, split: str) -> str:
    return f"{pick(rng, 'ABDEKLNSTU')}{pick(rng, 'ABDEKLNSTU')}{below(rng, 900) + 100}"


def _person(rng, split: str) -> str:
    return (
        names.given(rng, split)
        if rng.random() < 0.8
        else f"{names.given(rng, split)} {names.surname(rng, split)}"
        if rng.random() < 0.6
        else f"{pick(rng, ['Mr', 'Mrs', 'Dr', 'Ms'])} {names.surname(rng, split)}"
    )


_Make = Callable[[object, str], str]


# What a first link names, by its kind.
NAMED: dict[str, _Make] = {
    "person": _person, "org": _org, "room": _room, "town": names.town, "group": _group, "line": _line, "flight": _flight, "car": _vehicle, "box": _box,
    "team": lambda rng, split: values.value(rng, split, "team"), "book": lambda rng, split: values.value(rng, split, "title"),
    "pet": names.word, "locker": lambda rng, split: f"locker {below(rng, 400) + 1}",
    "project": lambda rng, split: f"{pick(rng, ['', '', 'project '])}{names.word(rng, split)}",
    "server": lambda rng, split: f"{pick(rng, ['web', 'db', 'node', 'srv', 'gpu', 'vm', 'app', 'box'])}{pick(rng, ['', '-'])}{below(rng, 60) + 1}",
    "event": lambda rng, split: f"the {pick(rng, ['', '', names.word(rng, split) + ' '])}{pick(rng, ('conference', 'concert', 'wedding', 'workshop', 'fair', 'festival', 'auction', 'parade', 'congress', 'gala'))}",
}  # fmt: skip


# Values that only second links have.
VALUES: dict[str, _Make] = {
    "given": names.given, "age": lambda rng, split: str(below(rng, 90) + 3), "size": lambda rng, split: str(below(rng, 20) + 30),
    "number3": lambda rng, split: str(below(rng, 900) + 1), "floorno": lambda rng, split: str(below(rng, 40) + 1), "line": _line, "room": _room,
    "distance": lambda rng, split: f"{below(rng, 900) + 2} {pick(rng, ['km', 'miles', 'kilometres', 'minutes'])}",
    "delay": lambda rng, split: f"{below(rng, 90) + 2} {pick(rng, ['minutes', 'min', 'hours'])}",
    "weather": lambda rng, split: pick(rng, ["sunny", "rainy", "cloudy", "foggy", "windy", "stormy", "cold", "hot", "mild", "freezing"]),
    "place": lambda rng, split: f"the {pick(rng, PLACES)}", "phrase": lambda rng, split: f"{pick(rng, ADJECTIVES)} {pick(rng, OBJECTS)}" if rng.random() < 0.6 else _vehicle(rng, split)[4:],
}  # fmt: skip
