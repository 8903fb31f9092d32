"""Values of remarks: those of other families, and many that are made of English words, letters and digits in odd orders.

A value is copied token by token, so what is rare in training is copied badly: most kinds here have no list behind them.
"""

from .. import names, texts
from ..splits import pick
from . import topics
from .sketch_blocks import article

WORDS = tuple(texts.read("plain_words").split())
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiouy"
_CAPITALS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_ANY = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_ENDS = "ster tastic ology ify erino let ling ish oid opolis matic nado zilla rama ware hub ly esque kin ette".split()
_TITLES = "Dr. Dr Mr. Mr Mrs. Mrs Ms. Ms Prof. Professor Captain Sister Father Judge Aunt Uncle Coach Officer Nurse Sir".split()
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen twenty thirty forty sixty ninety".split()
_HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
_SHADES = "dark light pale bright deep dusty navy mint forest lemon sky rose burnt electric smoky matte".split()
_BASIC = (
    "red blue green yellow orange purple pink brown black white grey gray teal silver gold beige maroon olive".split()
)
_MEDICINES = "in ol ine ide ax ate am one pril statin cillin zole vir mab".split()
_DISHES = "soup stew curry salad pie risotto tacos dumplings lasagna burger sandwich noodles pancakes casserole chili omelette gnocchi wrap".split()
_EVENTS = "Night Days Fest Jam Cup Run Gala Fair Week Ball Parade Marathon Camp Classic".split()
_SCHOOLS = (
    "Elementary|Primary School|High|High School|Middle School|Kindergarten|Academy|College|University|Montessori".split(
        "|"
    )
)
_PLACES = "Cafe|Diner|Grill|Bistro|Inn|Tavern|Arms|Kitchen|Lounge|Bar|Pizzeria|Bakery|Deli|Noodle House|Tea Room|Brewery|Steakhouse|Cantina".split(
    "|"
)
_PEOPLE = "Frogs Kings Ghosts Sons Daughters Children Wolves Masters Rivers Lords Birds Shadows Cowboys Poets Rabbits Riders".split()


def below(rng, n: int) -> int:
    return int(rng.random() * n)


def word(rng, split: str) -> str:
    """An English word, an invented one, or both in one."""
    style = rng.random()
    if style < 0.55:
        return pick(rng, WORDS)
    if style < 0.75:
        return names.word(rng, split).lower()
    if style < 0.88:
        return pick(rng, WORDS) + pick(rng, _ENDS if rng.random() < 0.6 else WORDS)
    return "".join(
        pick(rng, _CONSONANTS) * (1 + (rng.random() < 0.12)) + pick(rng, _VOWELS) + (pick(rng, _CONSONANTS) if rng.random() < 0.4 else "")
        for _ in range(1 + below(rng, 4))
    )  # fmt: skip


def name(rng, split: str) -> str:
    return word(rng, split).capitalize()


def handle(rng, split: str) -> str:
    mark = pick(rng, ["_", ".", "-", "", ""])
    parts = [
        word(rng, split) if rng.random() < 0.8 else names.given(rng, split).lower() for _ in range(1 + below(rng, 2))
    ]
    text = mark.join(parts) + pick(
        rng, ["", mark + str(below(rng, 100)), str(1950 + below(rng, 75)), mark + str(below(rng, 10000))]
    )
    return pick(rng, ["", "", "", "@"]) + (text.title() if rng.random() < 0.12 else text)


def mail(rng, split: str) -> str:
    who = handle(rng, split).lstrip("@").strip("-._") or "me"
    ending = pick(rng, "com org net io de co.uk edu fr dev info me club".split())
    return f"{who}@{word(rng, split)}{pick(rng, ['', 'mail', '-' + word(rng, split), ''])}.{ending}"


def long_code(rng, split: str) -> str:
    """Groups of letters and digits."""
    style, size = rng.random(), 2 + below(rng, 4)
    if style < 0.3:
        separator, count = pick(rng, ["-", "-", " ", ""]), 1 + below(rng, 4)
        return separator.join("".join(pick(rng, _CAPITALS + "0123456789") for _ in range(size)) for _ in range(count))
    if style < 0.5:
        return f"{pick(rng, _CAPITALS)}{pick(rng, _CAPITALS)}{pick(rng, ['', '-', ' '])}{below(rng, 10 ** (2 + below(rng, 5)))}{pick(rng, ['', '', pick(rng, _CAPITALS)])}"
    if style < 0.65:
        return f"{pick(rng, WORDS).upper()}{pick(rng, ['-', '', '_'])}{below(rng, 10000)}"
    if style < 0.8:
        return "".join(pick(rng, _ANY) for _ in range(5 + below(rng, 9)))
    return f"{below(rng, 100)}{pick(rng, ['/', '-', '.'])}{below(rng, 1000)}{pick(rng, ['/', '-', '.'])}{pick(rng, _CAPITALS)}{below(rng, 100)}"


def secret(rng, split: str) -> str:
    style = rng.random()
    if style < 0.3:
        return topics.value(rng, split, "password")
    one, other = word(rng, split), word(rng, split)
    if style < 0.5:
        return f"{one}{below(rng, 1000)}{pick(rng, ['', '!', '?', '#', '*'])}"
    if style < 0.65:
        return pick(rng, ["-", " ", "_", "."]).join([one, other, word(rng, split)][: 2 + below(rng, 2)])
    if style < 0.85:
        return f"{one.title()}{pick(rng, '!@#$%&*+=')}{other.title()}{below(rng, 100)}"
    swapped = one.replace("a", "4").replace("e", "3").replace("o", "0").replace("i", "1")
    return f"{swapped}{pick(rng, ['', '!', '$'])}{other.title()}"


def titled(rng, split: str) -> str:
    return f"{pick(rng, _TITLES)} {names.surname(rng, split) if rng.random() < 0.8 else name(rng, split)}"


def person(rng, split: str) -> str:
    style = rng.random()
    if style < 0.4:
        return names.given(rng, split)
    if style < 0.6:
        return f"{names.given(rng, split)} {names.surname(rng, split)}"
    if style < 0.78:
        return titled(rng, split)
    if style < 0.84:
        return f"{names.given(rng, split)} {pick(rng, _CAPITALS)}. {names.surname(rng, split)}"
    if style < 0.9:
        return f"{names.given(rng, split)} {names.surname(rng, split)}-{names.surname(rng, split)}"
    before = pick(rng, ["O'", "Mc", "van ", "de ", "von ", "al-", "Le "])
    return f"{names.given(rng, split)} {before}{names.surname(rng, split)}"


def band(rng, split: str) -> str:
    one, other = name(rng, split), name(rng, split)
    return pick(rng, [
        f"{pick(rng, _PEOPLE)} of {one}", f"The {one} {other}s", f"The {one}s", f"{one} and the {other}s", f"{one} {other}", f"{one}", f"Saint {one}",
        f"{below(rng, 90) + 2} {one}s", f"{names.given(rng, split)} and the {pick(rng, _PEOPLE)}", f"{one} in the {other}", f"No {one} for {other}",
    ])  # fmt: skip


def title(rng, split: str) -> str:
    one, other = name(rng, split), name(rng, split)
    return pick(rng, [
        f"The {one} of {other}", f"{one}", f"The Last {one}", f"A {one} for {names.given(rng, split)}", f"{one} and {other}", f"How to {one} a {other}", f"The {one} Who {other}ed",
        f"{pick(rng, ['Return', 'Night', 'Song', 'House', 'Garden', 'Island'])} of the {one}", f"{one}: {other}", f"{below(rng, 90) + 2} {one}s Later", f"Where the {one} Sleeps",
    ])  # fmt: skip


def eatery(rng, split: str) -> str:
    one = name(rng, split)
    return pick(rng, [f"{one}'s", f"the {one} {pick(rng, _PLACES)}", f"{names.given(rng, split)}'s {pick(rng, _PLACES)}", f"The {one} {name(rng, split)}", f"{pick(rng, ['Cafe', 'Hotel', 'Casa', 'Chez', 'Bar'])} {one}", f"the {pick(rng, _BASIC).title()} {one}"])  # fmt: skip


def clock(rng, split: str) -> str:
    hour, style = pick(rng, _HOURS), rng.random()
    if style < 0.45:
        return topics.value(rng, split, "time")
    if style < 0.6:
        return hour
    if style < 0.75:
        return f"{pick(rng, ['half past', 'quarter past', 'quarter to', 'ten to', 'five past', 'twenty past', 'shortly after'])} {hour}"
    if style < 0.82:
        return pick(rng, ["noon", "midnight", "lunchtime", "sunrise"])
    ends = [" in the morning", " sharp", "ish", " in the evening", " o'clock", "pm", "am"]
    return f"{1 + below(rng, 12)}{pick(rng, ['', ':15', ':30', ':45', '.20'])}{pick(rng, ends)}"


def day(rng, split: str) -> str:
    style = rng.random()
    if style < 0.35:
        return topics.value(rng, split, "day")
    if style < 0.5:
        return topics.value(rng, split, "dayish")
    if style < 0.7:
        return topics.value(rng, split, "date")
    return pick(rng, ["next ", "this ", "the first ", "the second ", "the last "]) + topics.value(rng, split, "day")


def price(rng, split: str) -> str:
    style, amount = rng.random(), below(rng, 10 ** (1 + below(rng, 4))) + 2
    if style < 0.35:
        return topics.value(rng, split, "price")
    if style < 0.65:
        return f"{amount} {pick(rng, ['quid', 'bucks', 'euros', 'dollars', 'pounds', 'francs', 'crowns', 'pence', 'cents', 'grand', 'yen', 'pesos', 'rupees'])}"
    if style < 0.8:
        return f"{pick(rng, '$£€')}{amount}{pick(rng, ['', '.50', '.99', '.05', 'k'])}"
    return f"{1 + below(rng, 90)},{below(rng, 1000):03d}{pick(rng, ['', ' euros', ' dollars', ' kr'])}"


def amount(rng, split: str) -> str:
    style = rng.random()
    return (
        str(2 + below(rng, 60))
        if style < 0.6
        else pick(rng, _NUMBERS)
        if style < 0.9
        else f"{below(rng, 9) + 1},{below(rng, 1000):03d}"
    )


def span(rng, split: str) -> str:
    style = rng.random()
    if style < 0.6:
        return f"{2 + below(rng, 58)} {pick(rng, ['minutes', 'days', 'hours', 'weeks', 'months', 'seconds', 'years', 'min'])}"
    return pick(rng, [
        "an hour and a half", "half an hour", "two and a half hours", "a fortnight", "three quarters of an hour", "all weekend", "a week", "ten days or so", "an hour",
        f"{pick(rng, _HOURS)} months", f"{pick(rng, _HOURS)} years", f"{pick(rng, _HOURS)} weeks", f"about {below(rng, 50) + 2} minutes", "a month and a half",
    ])  # fmt: skip


def goods(rng, split: str) -> str:
    """One to four things."""
    count = 1 + below(rng, 4)
    chosen = [thing(rng, split) for _ in range(count)]
    return chosen[0] if count == 1 else ", ".join(chosen[:-1]) + pick(rng, [" and ", ", and "]) + chosen[-1]


def thing(rng, split: str) -> str:
    style = rng.random()
    if style < 0.4:
        return topics.value(rng, split, pick(rng, ["food", "food", "plural"]))
    if style < 0.6:
        return f"{word(rng, split)} {pick(rng, _DISHES)}"
    return (
        f"{pick(rng, ['a ', '', 'a new ', 'some '])}{word(rng, split)}"
        if style < 0.8
        else f"{amount(rng, split)} {word(rng, split)}s"
    )


MAKERS = {
    "word": word, "name": name, "handle": handle, "mail": mail, "longcode": long_code, "secret": secret, "titled": titled, "person": person, "band": band, "title": title,
    "eatery": eatery, "clock": clock, "when": day, "price": price, "amount": amount, "span": span, "goods": goods, "thing": thing,
    "shade": lambda rng, split: f"{pick(rng, _SHADES) + ' ' if rng.random() < 0.4 else ''}{pick(rng, _BASIC)}" if rng.random() < 0.85 else pick(rng, WORDS),
    "medicine": lambda rng, split: pick(rng, ["", f"{5 * (1 + below(rng, 100))} mg of ", f"{1 + below(rng, 4)} drops of "]) + word(rng, split) + pick(rng, _MEDICINES),
    "dish": lambda rng, split: f"{word(rng, split)} {pick(rng, _DISHES)}" if rng.random() < 0.6 else pick(rng, _DISHES),
    "festival": lambda rng, split: f"the {name(rng, split)} {pick(rng, _EVENTS)}",
    "school": lambda rng, split: f"{name(rng, split)} {pick(rng, _SCHOOLS)}" if rng.random() < 0.7 else f"{pick(rng, ['St.', 'St', 'Lady', 'Mount'])} {name(rng, split)}",
    "spotcode": lambda rng, split: pick(rng, [f"{below(rng, 20)}-{below(rng, 400)}", f"{pick(rng, _CAPITALS)}{below(rng, 99) + 1}", f"{below(rng, 99) + 1}{pick(rng, _CAPITALS)}", f"{below(rng, 400) + 1}"]),
    "make": lambda rng, split: pick(rng, ["Kia", "Volvo", "Honda", "Toyota", "Skoda", "Mazda", "Fiat", "Subaru", "Peugeot", "Ford Fiesta", "Tesla", name(rng, split), f"{name(rng, split)} {below(rng, 900)}"]),
    "tall": lambda rng, split: pick(rng, [f"1.{50 + below(rng, 50)} m", f"{150 + below(rng, 50)} cm", f"{5 + below(rng, 2)} foot {1 + below(rng, 11)}", f"{5 + below(rng, 2)}'{1 + below(rng, 11)}"]),
    "blood": lambda rng, split: pick(rng, ["A", "B", "AB", "O"]) + pick(rng, [" positive", " negative", "+", "-"]),
    "breed": lambda rng, split: pick(rng, ["beagle", "poodle", "labrador", "pug", "husky", "mutt", "dachshund", "collie", "terrier", "boxer", "whippet", "corgi", f"{word(rng, split)} terrier", f"{word(rng, split)} hound", f"{word(rng, split)}doodle"]),
    "petname": lambda rng, split: names.given(rng, split) if rng.random() < 0.35 else pick(rng, [name(rng, split), name(rng, split), f"{pick(rng, ['Sir', 'Lady', 'Captain', 'Mr.', 'Princess', 'Old'])} {name(rng, split)}"]),
    "state": lambda rng, split: topics.value(rng, split, "state"),
}  # fmt: skip


def value(rng, split: str, kind: str) -> str:
    """A value of one of these kinds, or of `topics.value`. Names are of the split; words that are put together may be anyone's."""
    made = MAKERS.get(kind)
    return article(made(rng, split) if made else topics.value(rng, split, kind))
