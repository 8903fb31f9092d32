"""Times, dates, prices, codes, numbers and addresses, each in several spellings."""

from . import names
from .lexicon import (
    ADJECTIVES,
    CURRENCIES,
    DAYS,
    MONTHS,
    OBJECTS,
)
from .splits import pick

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


_MIXED = "abcdefghijkmnpqrstuvwxyz23456789"


_SPECIAL = "!?#-_.@+*&$%"


def below(rng, n: int) -> int:
    return int(rng.random() * n)


def time(rng, split) -> str:
    hour, minute, style = below(rng, 24), below(rng, 60), rng.random()
    if style < 0.45:
        return f"{hour}:{minute:02d}"
    if style < 0.55:
        return f"{hour:02d}:{minute:02d}"
    if style < 0.65:
        return f"{hour % 12 + 1}:{minute:02d}{pick(rng, [' am', ' pm', 'am', 'pm', ' a.m.', ' p.m.'])}"
    if style < 0.8:
        return f"{hour % 12 + 1}{pick(rng, [' am', ' pm', 'am', 'pm', ' oclock'])}"
    if style > 0.96:
        first = hour % 12 + 1
        return pick(
            rng,
            [
                f"{first}-{first + 2}{pick(rng, ['pm', 'am', ''])}",
                f"{first} to {first + 3}",
                f"{hour}:00-{(hour + 2) % 24}:30",
                f"{first}:30 - {first + 2}:00",
            ],
        )
    words = "one two three four five six seven eight nine ten eleven twelve".split()
    if style < 0.95:
        return pick(rng, ["half past ", "quarter past ", "quarter to ", "ten past ", "", "", "exactly "]) + pick(
            rng, words
        )
    return pick(rng, ["noon", "midnight", "dawn", "sunset", "lunchtime"])


def date(rng, split) -> str:
    day, month, style = below(rng, 28) + 1, pick(rng, MONTHS), rng.random()
    suffix = "th" if 4 <= day <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    if style < 0.2:
        return f"{day} {month}"
    if style < 0.4:
        return f"{month} {day}"
    if style < 0.5:
        return f"{month} {day}{suffix}"
    if style < 0.6:
        return f"the {day}{suffix}" + pick(rng, ["", f" of {month}"])
    if style < 0.75:
        return f"{day} {month} {1950 + below(rng, 100)}"
    if style < 0.85:
        return f"{1990 + below(rng, 50)}-{below(rng, 12) + 1:02d}-{day:02d}"
    if style < 0.92:
        return f"{day}.{below(rng, 12) + 1}.{2000 + below(rng, 40)}"
    return f"{pick(rng, DAYS)}, {month} {day}"


def price(rng, split) -> str:
    amount, style = int(rng.random() ** 2 * 3000) + 2, rng.random()
    if style < 0.2:
        return f"${amount}.{below(rng, 100):02d}"
    if style < 0.4:
        return f"{pick(rng, '$€£')}{amount}"
    if style < 0.8:
        return f"{amount} {pick(rng, CURRENCIES)}"
    if style < 0.9:
        return f"{amount}.{below(rng, 100):02d} {pick(rng, CURRENCIES)}"
    return f"{amount // 10 + 1}{pick(rng, ['k', ',000 euros', ' thousand dollars', ' million', '0 bucks'])}"


def code(rng, split) -> str:
    style = rng.random()
    digits = below(rng, 9000) + 100
    letters = "".join(pick(rng, LETTERS) for _ in range(1 + below(rng, 3)))
    if style < 0.35:
        return str(below(rng, 9000) + 1000)
    if style < 0.75:
        return pick(
            rng,
            [
                f"{letters}{digits}",
                f"{letters}-{digits}",
                f"{digits}-{letters}",
                f"{digits}{letters}",
                f"{letters} {digits}",
            ],
        )
    if style < 0.85:
        return "-".join(str(below(rng, 90) + 10) for _ in range(2 + below(rng, 3)))
    return "".join(pick(rng, _MIXED) for _ in range(4 + below(rng, 5)))


def password(rng, split) -> str:
    style = rng.random()
    word = names.word(rng, split)
    if style < 0.3:
        return f"{word}{below(rng, 1000)}{pick(rng, ['', '!', '?', '#'])}"
    if style < 0.55:
        return f"{word.lower()}{pick(rng, '-_.')}{names.word(rng, split).lower()}"
    if style < 0.75:
        return f"{pick(rng, ADJECTIVES).replace(' ', '')}{pick(rng, OBJECTS).replace(' ', '').title()}{below(rng, 100)}"
    return "".join(pick(rng, _MIXED if rng.random() < 0.85 else _SPECIAL) for _ in range(6 + below(rng, 6)))


def number(rng, split) -> str:
    size = rng.random()
    if size < 0.5:
        return str(below(rng, 990) + 3)
    if size < 0.75:
        return str(below(rng, 9000) + 1000)
    if size < 0.85:
        return f"{below(rng, 900) + 1},{below(rng, 1000):03d}"
    return f"{below(rng, 100)}.{below(rng, 100)}" if size < 0.95 else str(below(rng, 10**7))


def phone(rng, split) -> str:
    pairs = [f"{below(rng, 100):02d}" for _ in range(3 + below(rng, 3))]
    joined = pick(rng, ["-", " ", ""]).join(pairs)
    return joined if rng.random() < 0.5 else pick(rng, ["+", "0", "+4", "555-", "(0)"]) + joined


def mail(rng, split) -> str:
    local = pick(rng, [names.word(rng, split), names.given(rng, split), pick(rng, OBJECTS).replace(" ", "")]).lower()
    if rng.random() < 0.4:
        local += pick(rng, [".", "_", "-", ""]) + pick(rng, [str(below(rng, 100)), names.surname(rng, split).lower()])
    return f"{local}@{names.word(rng, split).lower()}.{pick(rng, ['com', 'org', 'net', 'io', 'de', 'co.uk'])}"


def url(rng, split) -> str:
    host = f"{names.word(rng, split).lower()}.{pick(rng, ['com', 'org', 'net', 'io', 'dev'])}"
    return (
        pick(rng, ["", "", "https://", "www."])
        + host
        + pick(rng, ["", "", f"/{pick(rng, OBJECTS).replace(' ', '-')}", f":{below(rng, 9000) + 1000}"])
    )
