"""Values of every kind: with thousands of possibilities or more, most of them in several spellings.

A value is copied token by token, so what is rare in training is copied badly: most kinds have no list behind them.
"""

import re

from . import names
from .splits import below, pick
from .texts import LISTS

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


def titled(rng, split: str) -> str:
    return f"{pick(rng, LISTS['honorifics'])} {names.surname(rng, split) if rng.random() < 0.8 else name(rng, split)}"


def person(rng, split: str) -> str:
    style, first = rng.random(), names.given(rng, split)
    if style < 0.4:
        return first
    last = names.surname(rng, split)
    if style < 0.6:
        return f"{first} {names.accented(rng, last) if rng.random() < 0.1 else last}"
    if style < 0.78:
        return titled(rng, split)
    if style < 0.84:
        return f"{first} {pick(rng, LETTERS)}. {last}"
    if style < 0.9:
        return f"{first} {last}-{names.surname(rng, split)}"
    return f"{first} {pick(rng, ['O', 'Mc', 'van ', 'de ', 'von ', 'al-', 'Le '])}{last}"


def _joined(rng, split: str) -> str:
    """Names of several words: "Sugar & Soot" is one value."""
    one, other = name(rng, split), name(rng, split)
    return pick(rng, ["{} & {}", "{} & {}", "{} and {}", "The {} and the {}", "{}, {} & Co", "{} + {}", "{} of {}", "{}-{}", "{}'s {}", "{} / {}"]).format(one, other)  # fmt: skip


def _band(rng, split: str) -> str:
    one, other, style = name(rng, split), name(rng, split), rng.random()
    if style < 0.25:
        return _joined(rng, split)
    return pick(rng, [
        f"{pick(rng, LISTS['band_people'])} of {one}", f"The {one} {other}s", f"The {one}s", f"{one} and the {other}s", f"{one} {other}", f"{one}", f"Saint {one}",
        f"{below(rng, 90) + 2} {one}s", f"{names.given(rng, split)} and the {pick(rng, LISTS['band_people'])}", f"{one} in the {other}", f"No {one} for {other}",
    ])  # fmt: skip


def _title(rng, split: str) -> str:
    one, other = name(rng, split), name(rng, split)
    return pick(rng, [
        f"The {one} of {other}", f"{one}", f"The Last {one}", f"A {one} for {names.given(rng, split)}", f"{one} and {other}", f"How to {one} a {other}", f"The {one} Who {other}ed",
        f"{pick(rng, ['Return', 'Night', 'Song', 'House', 'Garden', 'Island'])} of the {one}", f"{one}: {other}", f"{below(rng, 90) + 2} {one}s Later", f"Where the {one} Sleeps",
    ])  # fmt: skip


def _eatery(rng, split: str) -> str:
    one = name(rng, split)
    if rng.random() < 0.2:
        return _joined(rng, split)
    return pick(rng, [f"{one}'s", f"the {one} {pick(rng, LISTS['eateries'])}", f"{names.given(rng, split)}'s {pick(rng, LISTS['eateries'])}", f"The {one} {name(rng, split)}", f"{pick(rng, ['Cafe', 'Hotel', 'Casa', 'Chez', 'Bar'])} {one}", f"the {pick(rng, LISTS['colours']).title()} {one}"])  # fmt: skip


def _org(rng, split: str) -> str:
    kind, one = pick(rng, LISTS["orgs"]), names.word(rng, split)
    return pick(
        rng,
        [f"{one} {kind}", f"{one} {kind}", f"the {one} {kind}", f"{kind} {one}", f"{names.given(rng, split)}'s {kind}"],
    )


def _noun(rng, split: str) -> str:
    return pick(rng, LISTS["objects"]) if rng.random() < 0.85 else names.word(rng, split).lower()


def _phrase(rng, split: str) -> str:
    return pick(rng, ["{} {}", "{} {}", "{} {}", "{} big {}", "{} old {}"]).format(
        pick(rng, LISTS["adjectives"]), _noun(rng, split)
    )


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


def code(rng, split: str) -> str:
    style, number = rng.random(), below(rng, 9000) + 100
    letters = "".join(pick(rng, LETTERS) for _ in range(1 + below(rng, 3)))
    if style < 0.4:
        return str(below(rng, 9000) + 1000)
    if style < 0.75:
        return pick(rng, ["{0}{1}", "{0}-{1}", "{1}-{0}", "{1}{0}", "{0} {1}"]).format(letters, number)
    return long_code(rng, split)


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


def file(rng, split: str) -> str:
    stem = _noun(rng, split).replace(" ", "_") if rng.random() < 0.4 else word(rng, split)
    more = pick(
        rng,
        [
            "",
            "",
            "_v2",
            "-final",
            "_new",
            f"_{below(rng, 2000)}",
            f"-{word(rng, split)}",
            f".{below(rng, 30)}",
            f" ({below(rng, 9)})",
        ],
    )
    before = pick(rng, ["", "", "", "", f"{word(rng, split)}/", "~/", "C:\\", f"/{word(rng, split)}/"])
    return f"{before}{stem}{more}.{pick(rng, LISTS['file_ends'])}"


def _phone(rng, split: str) -> str:
    pairs = [f"{below(rng, 100):02d}" for _ in range(3 + below(rng, 3))]
    return _maybe(rng, 0.5, pick(rng, ["+", "0", "+4", "555-", "(0)"])) + pick(rng, ["-", " ", ""]).join(pairs)


def number(rng, split: str) -> str:
    size = rng.random()
    if size < 0.5:
        return str(below(rng, 990) + 3)
    if size < 0.75:
        return str(below(rng, 9000) + 1000)
    if size < 0.85:
        return f"{below(rng, 900) + 1},{below(rng, 1000):03d}"
    return f"{below(rng, 100)}.{below(rng, 100)}" if size < 0.95 else str(below(rng, 10**7))


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


def _when(rng, split: str) -> str:
    style, day = rng.random(), _day(rng, split)
    if style < 0.35:
        return day
    if style < 0.6:
        return date(rng, split)
    if style < 0.75:
        return f"{day} {pick(rng, ['morning', 'afternoon', 'evening', 'night', 'next week', 'at noon'])}"
    return pick(rng, ["next ", "this ", "the first ", "the second ", "the last "]) + day


def price(rng, split: str) -> str:
    style, amount = rng.random(), below(rng, 10 ** (1 + below(rng, 4))) + 2
    if style < 0.25:
        return f"{pick(rng, '$£€')}{amount}{pick(rng, ['', '', '.50', '.99', '.05', 'k'])}"
    if style < 0.7:
        return f"{amount}{pick(rng, ['', '', '.50', '.20'])} {pick(rng, LISTS['currencies'])}"
    if style < 0.85:
        return f"{1 + below(rng, 90)},{below(rng, 1000):03d}{pick(rng, ['', ' euros', ' dollars', ' kr'])}"
    return f"{amount} {pick(rng, ['grand', 'cents', 'kr', 'CHF'])}"


def amount(rng, split: str) -> str:
    style = rng.random()
    if style < 0.9:
        return str(2 + below(rng, 60)) if style < 0.6 else pick(rng, LISTS["tens"])
    return f"{below(rng, 9) + 1},{below(rng, 1000):03d}"


def span(rng, split: str) -> str:
    if rng.random() < 0.6:
        return f"{2 + below(rng, 58)} {pick(rng, ['minutes', 'days', 'hours', 'weeks', 'months', 'seconds', 'years', 'min'])}"
    return pick(rng, [
        "an hour and a half", "half an hour", "two and a half hours", "a fortnight", "three quarters of an hour", "all weekend", "a week", "ten days or so", "an hour",
        f"{pick(rng, NUMBERS)} months", f"{pick(rng, NUMBERS)} years", f"{pick(rng, NUMBERS)} weeks", f"about {below(rng, 50) + 2} minutes", "a month and a half",
    ])  # fmt: skip


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


def place(rng, split: str) -> str:
    style = rng.random()
    if style < 0.6:
        return f"the {_maybe(rng, 0.2, pick(rng, LISTS['adjectives']) + ' ')}{pick(rng, LISTS['places'])}"
    return _org(rng, split) if style < 0.9 else names.town(rng, split)


def spot(rng, split: str) -> str:
    """Where a thing is, with its preposition."""
    style = rng.random()
    own = f"{pick(rng, ['the', 'the', 'the', 'my', 'our', names.given(rng, split) + chr(39) + 's'])} {_maybe(rng, 0.45, pick(rng, LISTS['adjectives']) + ' ')}"
    if style < 0.35:
        return f"{pick(rng, ['in', 'in', 'inside', 'at the back of', 'at the bottom of'])} {own}{pick(rng, LISTS['containers'])}"
    if style < 0.55:
        return f"{pick(rng, ['on', 'on', 'on top of', 'under'])} {own}{pick(rng, LISTS['surfaces'])}"
    if style < 0.8:
        return f"{pick(rng, ['under', 'behind', 'next to', 'near', 'beside', 'in front of', 'above', 'opposite'])} {own}{pick(rng, LISTS['objects'])}"
    if style < 0.9:
        return f"{pick(rng, ['on', 'in', 'at'])} {pick(rng, ['level', 'floor', 'shelf', 'row', 'bay', 'deck', 'box', 'rack', 'locker', 'room'])} {below(rng, 60) + 1}{pick(rng, ['', '', 'A', 'B', 'C'])}"
    return f"{pick(rng, ['at', 'behind', 'near', 'in', 'outside'])} {place(rng, split)}"


def _room(rng, split: str) -> str:
    style = rng.random()
    if style < 0.5:
        return f"{pick(rng, ['room', 'room', 'Room', 'hall', 'office', 'lab', 'studio', 'classroom', 'building', 'ward'])} {below(rng, 900) + 1}"
    if style < 0.75:
        return f"room {pick(rng, LETTERS)}{below(rng, 40) + 1}"
    return f"the {pick(rng, [*LISTS['colours'], names.word(rng, split)])} room"


def _floor(rng, split: str) -> str:
    if rng.random() < 0.45:
        return f"{pick(rng, ['level', 'floor', 'deck', 'storey'])} {below(rng, 40) + 1}"
    return f"the {pick(rng, ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'top', 'ground', 'upper', 'lower'])} floor"


def _plural(noun: str) -> str:
    return noun if noun.endswith("s") else f"{noun}es" if noun.endswith(("ch", "sh", "x")) else f"{noun}s"


def thing(rng, split: str) -> str:
    style = rng.random()
    if style < 0.4:
        return pick(rng, LISTS["foods"]) if style < 0.25 else _plural(_noun(rng, split))
    if style < 0.6:
        return f"{word(rng, split)} {pick(rng, LISTS['dishes'])}"
    if style < 0.8:
        return f"{pick(rng, ['a ', '', 'a new ', 'some '])}{word(rng, split)}"
    return f"{amount(rng, split)} {word(rng, split)}s"


def _goods(rng, split: str) -> str:
    return several(rng, [thing(rng, split) for _ in range(3)])


def _street(rng, split: str) -> str:
    return f"{pick(rng, [names.word(rng, split), pick(rng, LISTS['objects']).title()])} {pick(rng, LISTS['streets'])}"


def _pattern(*forms: str):
    """A maker of noun phrases: {c} a colour, {w} a word, {n} a name, {p} a first name, {d} a number."""

    def make(rng, split: str) -> str:
        fields = {
            "c": pick(rng, LISTS["coloured"]),
            "w": pick(rng, LISTS["english"]),
            "n": name(rng, split),
            "p": names.given(rng, split),
            "d": 1 + below(rng, 99),
        }
        return pick(rng, forms).format(**fields)

    return make


def _choice(kind: str):
    return lambda rng, split: pick(rng, LISTS[kind]) if rng.random() < 0.93 else names.word(rng, split)


_MAKERS = {
    "word": word, "name": name, "handle": handle, "mail": mail, "url": url, "longcode": long_code, "secret": secret, "password": secret, "titled": titled, "person": person,
    "band": _band, "title": _title, "eatery": _eatery, "clock": clock, "time": clock, "when": _when, "price": price, "amount": amount, "span": span, "goods": _goods, "thing": thing,
    "date": date, "code": code, "digits": digits, "file": file, "phone": _phone, "number": number, "spot": spot, "place": place, "org": _org, "room": _room, "floor": _floor, "phrase": _phrase,
    "day": _day, "weekdays": _weekdays, "firstname": names.given, "town": names.town, "street": _street, "noun": _noun,
    "plural": lambda rng, split: _plural(_noun(rng, split)), "month": lambda rng, split: pick(rng, LISTS["months"]), "year": lambda rng, split: str(1850 + below(rng, 200)),
    "address": lambda rng, split: f"{below(rng, 300) + 1} {_street(rng, split)}",
    "company": lambda rng, split: f"{names.word(rng, split)}{_maybe(rng, 0.5, ' ' + pick(rng, LISTS['companies']))}" if rng.random() < 0.8 else _joined(rng, split),
    "team": lambda rng, split: f"the {names.word(rng, split)} {pick(rng, ['Hawks', 'Bears', 'Rovers', 'Wolves', 'Comets', 'Choir', 'Band', 'Owls'])}",
    "people": lambda rng, split: several(rng, [names.given(rng, split) for _ in range(3)]), "foods": lambda rng, split: several(rng, LISTS["foods"]),
    "count": lambda rng, split: str(below(rng, 98) + 2) if rng.random() < 0.8 else pick(rng, NUMBERS), "few": lambda rng, split: str(1 + below(rng, 9)),
    "percent": lambda rng, split: f"{below(rng, 100)}{pick(rng, ['%', ' percent', '.5%'])}", "age": lambda rng, split: str(below(rng, 95) + 3),
    "ip": lambda rng, split: ".".join(str(below(rng, 255)) for _ in range(4)), "port": lambda rng, split: str(below(rng, 60000) + 20),
    "version": lambda rng, split: f"{pick(rng, ['', 'v'])}{below(rng, 20)}.{below(rng, 20)}{_maybe(rng, 0.5, f'.{below(rng, 10)}')}",
    "seatnumber": lambda rng, split: f"{pick(rng, ['seat ', '', 'row '])}{below(rng, 60) + 1}{pick(rng, 'ABCDEFHK')}",
    "gate": lambda rng, split: f"{pick(rng, ['gate', 'platform', 'track', 'terminal', 'stop', 'pier'])} {_maybe(rng, 0.8, pick(rng, LETTERS[:5]))}{below(rng, 60) + 1}",
    "flight": lambda rng, split: f"{pick(rng, LETTERS)}{pick(rng, LETTERS)}{_maybe(rng, 0.3, ' ')}{below(rng, 9000) + 10}",
    "ordinal": lambda rng, split: _ordinal(below(rng, 30) + 1), "distance": lambda rng, split: f"{1 + below(rng, 30)} {pick(rng, ['km', 'miles', 'kilometres'])}",
    "temp": lambda rng, split: f"{below(rng, 25) * 10 + 40}{pick(rng, ['', ' degrees', '°C', ' C', '°'])}", "temperature": lambda rng, split: f"{below(rng, 250)} {pick(rng, ['degrees', '°C', 'C'])}",
    "weight": _measure("kilos", "grams", "pounds", "kg", "tons", "g"), "length": _measure("metres", "inches", "feet", "centimetres", "cm", "m"), "duration": _measure("minutes", "hours", "days", "weeks"),
    "quantity": _measure(*LISTS["units"]), "measure": _measure("g", "grams", "ml", "litres", "cups", "spoons", "kilos", "pinches"),
    "colour": _choice("colours"), "material": _choice("materials"), "food": _choice("foods"), "language": _choice("languages"), "subject": _choice("subjects"), "sport": _choice("sports"),
    "instrument": _choice("instruments"), "job": _choice("jobs"), "animal": _choice("animals"), "country": _choice("countries"), "activity": _choice("activities"), "illness": _choice("illnesses"),
    "petkind": _choice("pets"), "room2": _choice("rooms"), "langtool": _choice("tools"), "drink": _choice("drinks"), "state": _choice("states"),
    "shade": lambda rng, split: f"{_maybe(rng, 0.4, pick(rng, LISTS['shades']) + ' ')}{pick(rng, LISTS['colours'])}" if rng.random() < 0.85 else pick(rng, LISTS["english"]),
    "medicine": lambda rng, split: pick(rng, ["", f"{5 * (1 + below(rng, 100))} mg of ", f"{1 + below(rng, 4)} drops of "]) + word(rng, split) + pick(rng, LISTS['medicine_ends']),
    "dish": lambda rng, split: f"{_maybe(rng, 0.6, word(rng, split) + ' ')}{pick(rng, LISTS['dishes'])}", "festival": lambda rng, split: f"the {name(rng, split)} {pick(rng, LISTS['festivals'])}",
    "school": lambda rng, split: f"{name(rng, split)} {pick(rng, LISTS['schools'])}" if rng.random() < 0.7 else f"{pick(rng, ['St.', 'St', 'Lady', 'Mount'])} {name(rng, split)}",
    "spotcode": lambda rng, split: pick(rng, [f"{below(rng, 20)}-{below(rng, 400)}", f"{pick(rng, LETTERS)}{below(rng, 99) + 1}", f"{below(rng, 99) + 1}{pick(rng, LETTERS)}", f"{below(rng, 400) + 1}"]),
    "make": lambda rng, split: pick(rng, ["Kia", "Volvo", "Honda", "Toyota", "Skoda", "Mazda", "Fiat", "Subaru", "Peugeot", "Ford Fiesta", "Tesla", name(rng, split), f"{name(rng, split)} {below(rng, 900)}"]),
    "tall": lambda rng, split: pick(rng, [f"1.{50 + below(rng, 50)} m", f"{150 + below(rng, 50)} cm", f"{5 + below(rng, 2)} foot {1 + below(rng, 11)}", f"{5 + below(rng, 2)}'{1 + below(rng, 11)}"]),
    "shopsize": lambda rng, split: pick(rng, ["S", "M", "L", "XL", "XS", "medium", "large", "small", f"{below(rng, 30) + 32}", f"{below(rng, 14) + 3}.5"]),
    "blood": lambda rng, split: pick(rng, ["A", "B", "AB", "O"]) + pick(rng, [" positive", " negative", "+", "-"]),
    "breed": lambda rng, split: pick(rng, ["beagle", "poodle", "labrador", "pug", "husky", "mutt", "dachshund", "collie", "boxer", "whippet", "corgi", f"{word(rng, split)} terrier", f"{word(rng, split)} hound"]),
    "petname": lambda rng, split: names.given(rng, split) if rng.random() < 0.35 else pick(rng, [name(rng, split), name(rng, split), f"{pick(rng, ['Sir', 'Lady', 'Captain', 'Mr.', 'Princess', 'Old'])} {name(rng, split)}"]),
    "mything": lambda rng, split: f"my {_noun(rng, split)}", "children": lambda rng, split: several(rng, [names.given(rng, split) for _ in range(3)]),
    "vehicle3": lambda rng, split: f"a {pick(rng, LISTS['adjectives'])} {pick(rng, ['van', 'truck', 'bike', 'scooter', 'car', 'bus', 'jeep'])}",
    # What the first of two facts names.
    "box": _pattern("the {c} box", "box {d}", "the {c} tin", "the {w} drawer", "the {c} bag", "crate {d}", "the {c} folder", "{p}'s backpack", "the {w} jar", "the {c} suitcase"),
    "host": _pattern("{w}-{d}", "server {n}", "the {n} box", "node {d}", "the {c} drive", "disk {d}", "{w}{d}", "the {w} server", "NAS {d}", "{p}'s laptop"),
    "chamber": _pattern("room {d}", "the {c} room", "{n}", "{n} Hall", "lab {d}", "the {n} room", "the {w} lounge", "room {d}B", "the {n} suite"),
    "keyname": _pattern("key {d}", "the {c} key", "the {w} key", "key {n}", "the key with the {c} tag", "the {n} card"),
    "model": _pattern("the {c} {n}", "the {c} van", "the {c} Volvo", "the {c} {n} {d}", "the {c} pickup", "the {w} van", "the {c} Kia", "the {n}", "the {c} truck"),
    "hotelname": _pattern("the {n} Inn", "Hotel {n}", "the {n}", "the Grand {n}", "{n} Lodge", "the {c} {w} Hotel", "Villa {n}", "the {n} Palace", "Pension {n}"),
    "birthdayof": _pattern("{p}'s birthday", "{n} Day", "the {w} festival", "our anniversary", "{p}'s exam", "the {n} parade", "Grandma's party", "{p}'s first day"),
    "venue": _pattern("the {n}", "{n} Arena", "the {w} theatre", "Club {n}", "the {n} Center", "{n} Hall", "the old {w} mill", "the {n} Museum", "Cafe {n}", "the {c} barn"),
    "stuff": _pattern("{w}", "{w} powder", "{n} salt", "fresh {w}", "{w} oil", "dried {w}", "{w} paste", "{n} vinegar"),
    "softname": _pattern("{n}", "lib{w}", "{n}JS", "{w}db", "{n} Engine", "the {n} framework", "py{w}", "{n}OS"),
    "bosstitle": _pattern("the {w} king", "the new captain", "the {n} champion", "the {w} queen", "the guest of honour", "the {n} judge", "the head of {n}", "the {c} knight"),
    "flightname": lambda rng, split: value(rng, split, "flight") if rng.random() < 0.7 else f"the {1 + below(rng, 22)} o'clock plane",
}  # fmt: skip
KINDS = tuple(_MAKERS)


def value(rng, split: str, kind: str) -> str:
    """A value of the kind, or one of those that it lists: "=red/green". Names are of the split."""
    return pick(rng, kind[1:].split("/")) if kind[0] == "=" else article(_MAKERS[kind](rng, split))
