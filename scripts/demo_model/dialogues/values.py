"""Values of every kind: with thousands of possibilities or more, most of them in several spellings.

A value is copied token by token, so what is rare in training is copied badly: most kinds have no list.
"""

import re

from . import names
from .splits import below, pick
from .texts import LISTS, PATTERNS

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_ANY = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SPECIAL = "!?#-_.@+*&$%"
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
_HOURS = ["one", *NUMBERS]


def article(text: str) -> str:
    """With "an" before a vowel."""
    return re.sub(r"\ba (?=[aeiou])", "an ", text)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _maybe(rng, share: float, text: str) -> str:
    return text if rng.random() < share else ""


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 4 <= number <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# Words and names


def word(rng, split: str) -> str:
    """An English word, an invented one, or both in one."""
    style = rng.random()
    if style < 0.55:
        return pick(rng, LISTS["english"])
    if style < 0.75:
        return names.word(rng, split).lower()
    if style < 0.88:
        return pick(rng, LISTS["english"]) + pick(rng, LISTS["word_ends"] if rng.random() < 0.6 else LISTS["english"])
    return "".join(
        pick(rng, names.CONSONANTS) * (1 + (rng.random() < 0.12)) + pick(rng, names.VOWELS) + _maybe(rng, 0.4, pick(rng, names.CONSONANTS))
        for _ in range(1 + below(rng, 4))
    )  # fmt: skip


def name(rng, split: str) -> str:
    text = word(rng, split).capitalize()
    return names.accented(rng, text) if rng.random() < 0.06 else text


def _noun(rng, split: str) -> str:
    return pick(rng, LISTS["objects"]) if rng.random() < 0.85 else names.word(rng, split).lower()


# Codes


def handle(rng, split: str) -> str:
    mark = pick(rng, ["_", ".", "-", "", ""])
    parts = [
        word(rng, split) if rng.random() < 0.8 else names.given(rng, split).lower() for _ in range(1 + below(rng, 2))
    ]
    ends = ["", mark + str(below(rng, 100)), str(1950 + below(rng, 75)), mark + str(below(rng, 10000))]
    text = mark.join(parts) + pick(rng, ends)
    return pick(rng, ["", "", "", "@"]) + (text.title() if rng.random() < 0.12 else text)


def mail(rng, split: str) -> str:
    who = handle(rng, split).lstrip("@").strip("-._") or "me"
    ending = pick(rng, "com org net io de co.uk edu fr dev info me club".split())
    return f"{who}@{word(rng, split)}{pick(rng, ['', 'mail', '-' + word(rng, split), ''])}.{ending}"


def url(rng, split: str) -> str:
    host = f"{word(rng, split)}.{pick(rng, ['com', 'org', 'net', 'io', 'dev'])}"
    return pick(rng, ["", "", "https://", "www."]) + host + pick(rng, ["", "", f"/{_noun(rng, split).replace(' ', '-')}", f":{below(rng, 9000) + 1000}"])  # fmt: skip


def digits(rng, split: str) -> str:
    """Digits of any number, now and then in groups or all the same."""
    style = rng.random()
    if style < 0.1:
        return str(below(rng, 10)) * (2 + below(rng, 5))
    text = "".join(str(below(rng, 10)) for _ in range(3 + below(rng, 8)))
    if style < 0.4:
        size = 2 + below(rng, 3)
        return pick(rng, " -./").join(text[at : at + size] for at in range(0, len(text), size))
    return text


def long_code(rng, split: str) -> str:
    """Groups of letters and digits, in any form."""
    style, size = rng.random(), 2 + below(rng, 4)
    if style < 0.25:
        separator, count = pick(rng, ["-", "-", " ", ""]), 1 + below(rng, 4)
        return separator.join("".join(pick(rng, LETTERS + "0123456789") for _ in range(size)) for _ in range(count))
    if style < 0.45:
        return f"{pick(rng, LETTERS)}{pick(rng, LETTERS)}{pick(rng, ['', '-', ' '])}{below(rng, 10 ** (2 + below(rng, 5)))}{_maybe(rng, 0.33, pick(rng, LETTERS))}"
    if style < 0.55:
        return f"{pick(rng, LISTS['english']).upper()}{pick(rng, ['-', '', '_'])}{below(rng, 10000)}"
    if style < 0.7:
        return "".join(pick(rng, _ANY) for _ in range(4 + below(rng, 10)))
    if style < 0.85:
        return digits(rng, split)
    return (
        f"{below(rng, 100)}{pick(rng, '/-.#')}{below(rng, 1000)}{pick(rng, '/-.')}{pick(rng, LETTERS)}{below(rng, 100)}"
    )


def secret(rng, split: str) -> str:
    style, one, other = rng.random(), word(rng, split), word(rng, split)
    if style < 0.15:
        return "".join(pick(rng, _ANY if rng.random() < 0.85 else _SPECIAL) for _ in range(6 + below(rng, 6)))
    if style < 0.45:
        return f"{one}{below(rng, 1000)}{pick(rng, ['', '!', '?', '#', '*'])}"
    if style < 0.65:
        return pick(rng, ["-", " ", "_", "."]).join([one, other, word(rng, split)][: 2 + below(rng, 2)])
    if style < 0.85:
        return f"{one.title()}{pick(rng, '!@#$%&*+=')}{other.title()}{below(rng, 100)}"
    return f"{one.replace('a', '4').replace('e', '3').replace('o', '0')}{pick(rng, ['', '!', '$'])}{other.title()}"


def _phone(rng, split: str) -> str:
    pairs = [f"{below(rng, 100):02d}" for _ in range(3 + below(rng, 3))]
    return _maybe(rng, 0.5, pick(rng, ["+", "0", "+4", "555-", "(0)"])) + pick(rng, ["-", " ", ""]).join(pairs)


# Times and amounts


def clock(rng, split: str) -> str:
    hour, minute, style = below(rng, 24), below(rng, 60), rng.random()
    if style < 0.4:
        return f"{hour}:{minute:02d}"
    if style < 0.6:
        return f"{hour % 12 + 1}{pick(rng, ['', f':{minute:02d}', f'.{minute:02d}'])}{pick(rng, [' am', ' pm', 'am', 'pm', ' a.m.', ' in the morning', ' sharp', 'ish', ' in the evening'])}"
    if style < 0.85:
        early = ["half past ", "quarter past ", "quarter to ", "ten to ", "twenty past ", "shortly after ", "", "", ""]
        return pick(rng, early) + pick(rng, _HOURS)
    if style < 0.93:
        first = hour % 12 + 1
        return pick(
            rng, [f"{first}-{first + 2}{pick(rng, ['pm', 'am', ''])}", f"{first} to {first + 3}", f"{first} o'clock"]
        )
    return pick(rng, ["noon", "midnight", "dawn", "sunset", "lunchtime", "sunrise"])


def date(rng, split: str) -> str:
    day, month, style = below(rng, 28) + 1, pick(rng, LISTS["months"]), rng.random()
    if style < 0.55:
        nth = _ordinal(day)
        return pick(rng, [f"{day} {month}", f"{month} {day}", f"{month} {nth}", f"the {nth}", f"the {nth} of {month}"])
    if style < 0.7:
        return f"{day} {month} {1950 + below(rng, 100)}"
    if style < 0.85:
        return f"{1990 + below(rng, 50)}-{below(rng, 12) + 1:02d}-{day:02d}"
    if style < 0.92:
        return f"{day}.{below(rng, 12) + 1}.{2000 + below(rng, 40)}"
    return f"{_day(rng, split)}, {month} {day}"


def _day(rng, split: str) -> str:
    return pick(rng, LISTS["days"])


def _weekdays(rng, split: str) -> str:
    days = rng.sample(LISTS["days"], 2)
    return f"{days[0]}s" if rng.random() < 0.75 else f"{days[0]}s and {days[1]}s"


def _measure(*units: str):
    return lambda rng, split: f"{below(rng, 900) + 2}{_maybe(rng, 0.25, '.5')} {pick(rng, units)}"


def several(rng, items) -> str:
    """One to three items: "a, b and c"."""
    *before, last = dict.fromkeys(pick(rng, items) for _ in range(1 + below(rng, 3)))
    return f"{', '.join(before)} and {last}" if before else last


# Places and things


def plural(noun: str) -> str:
    return noun if noun.endswith("s") else f"{noun}es" if noun.endswith(("ch", "sh", "x")) else f"{noun}s"


def _goods(rng, split: str) -> str:
    return several(rng, [value(rng, split, "thing") for _ in range(3)])


def _choice(kind: str):
    return lambda rng, split: pick(rng, LISTS[kind]) if rng.random() < 0.93 else names.word(rng, split)


_MAKERS = {
    "word": word, "name": name, "handle": handle, "mail": mail, "url": url, "longcode": long_code, "secret": secret, "password": secret,
    "clock": clock, "time": clock, "goods": _goods,
    "date": date, "digits": digits, "phone": _phone,
    "day": _day, "weekdays": _weekdays, "firstname": names.given, "lastname": names.surname, "invented": names.word, "town": names.town, "noun": _noun,
    "plural": lambda rng, split: plural(_noun(rng, split)), "month": lambda rng, split: pick(rng, LISTS["months"]), "year": lambda rng, split: str(1850 + below(rng, 200)),
    "company": lambda rng, split: f"{names.word(rng, split)}{_maybe(rng, 0.5, ' ' + pick(rng, LISTS['companies']))}" if rng.random() < 0.8 else value(rng, split, 'joined'),
    "people": lambda rng, split: several(rng, [names.given(rng, split) for _ in range(3)]), "foods": lambda rng, split: several(rng, LISTS["foods"]),
    "count": lambda rng, split: str(below(rng, 98) + 2) if rng.random() < 0.8 else pick(rng, NUMBERS), "few": lambda rng, split: str(1 + below(rng, 9)),
    "percent": lambda rng, split: f"{below(rng, 100)}{pick(rng, ['%', ' percent', '.5%'])}", "age": lambda rng, split: str(below(rng, 95) + 3),
    "ip": lambda rng, split: ".".join(str(below(rng, 255)) for _ in range(4)), "port": lambda rng, split: str(below(rng, 60000) + 20),
    "version": lambda rng, split: f"{pick(rng, ['', 'v'])}{below(rng, 20)}.{below(rng, 20)}{_maybe(rng, 0.5, f'.{below(rng, 10)}')}",
    "ordinal": lambda rng, split: _ordinal(below(rng, 30) + 1),
    "weight": _measure("kilos", "grams", "pounds", "kg", "tons", "g"), "length": _measure("metres", "inches", "feet", "centimetres", "cm", "m"), "duration": _measure("minutes", "hours", "days", "weeks"),
    "quantity": _measure(*LISTS["units"]), "measure": _measure("g", "grams", "ml", "litres", "cups", "spoons", "kilos", "pinches"),
    "colour": _choice("colours"), "material": _choice("materials"), "food": _choice("foods"), "language": _choice("languages"), "subject": _choice("subjects"), "sport": _choice("sports"),
    "instrument": _choice("instruments"), "job": _choice("jobs"), "animal": _choice("animals"), "country": _choice("countries"), "activity": _choice("activities"), "illness": _choice("illnesses"),
    "petkind": _choice("pets"), "room2": _choice("rooms"), "langtool": _choice("tools"), "drink": _choice("drinks"), "state": _choice("states"),
    "shade": lambda rng, split: f"{_maybe(rng, 0.4, pick(rng, LISTS['shades']) + ' ')}{pick(rng, LISTS['colours'])}" if rng.random() < 0.85 else pick(rng, LISTS["english"]),
    "medicine": lambda rng, split: pick(rng, ["", f"{5 * (1 + below(rng, 100))} mg of ", f"{1 + below(rng, 4)} drops of "]) + word(rng, split) + pick(rng, LISTS['medicine_ends']),
    "dish": lambda rng, split: f"{_maybe(rng, 0.6, word(rng, split) + ' ')}{pick(rng, LISTS['dishes'])}",
    "school": lambda rng, split: f"{name(rng, split)} {pick(rng, LISTS['schools'])}" if rng.random() < 0.7 else f"{pick(rng, ['St.', 'St', 'Lady', 'Mount'])} {name(rng, split)}",
    "tall": lambda rng, split: pick(rng, [f"1.{50 + below(rng, 50)} m", f"{150 + below(rng, 50)} cm", f"{5 + below(rng, 2)} foot {1 + below(rng, 11)}", f"{5 + below(rng, 2)}'{1 + below(rng, 11)}"]),
    "children": lambda rng, split: several(rng, [names.given(rng, split) for _ in range(3)]),
}  # fmt: skip
_PART = re.compile(r"\{(#?\w+)\}")


def made(rng, split: str, form: str) -> str:
    """A pattern with its parts: a number, an item of a list, a value of a kind."""

    def part(match: re.Match) -> str:
        name = match[1]
        if name[0] == "#":
            return str(1 + below(rng, int(name[1:])))
        return pick(rng, LISTS[name]) if name in LISTS else value(rng, split, name)

    return _PART.sub(part, form)


def value(rng, split: str, kind: str) -> str:
    """A value of the kind, or one of those that it lists: "=red/green". Names are of the split."""
    if kind[0] == "=":
        return pick(rng, kind[1:].split("/"))
    return article(_MAKERS[kind](rng, split) if kind in _MAKERS else made(rng, split, pick(rng, PATTERNS[kind])))
