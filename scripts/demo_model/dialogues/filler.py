"""Unrelated text between facts: prose from a small grammar, lists, tables, other scripts. It states no fact about a named entity."""

from functools import partial

from .splits import draw, pick
from .words import ADJECTIVES, ADVERBS, NOUNS, PLACES, VERBS

_ONSETS = "b br d dr f fl g gr h k kl l m n p pr r s sh st t tr v w z".split()
_RIMES = "a al an ar ell em en er i il in ir o ol on or u ul um un ay ie ost ash ick".split()
_SYLLABLES = [onset + rime for onset in _ONSETS for rime in _RIMES]
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"
_SENTENCES = """The {a} {n} {v} the {m} {l}.|{D}, a {n} {v} the {a} {m}.|Nobody {v} the {n}, but the {m} was {a}.
Every {n} needs a {a} {m}.|A {n} without a {m} is like a {o} without a {k}.|The {n} and the {m} were {a} and {b}.
When the {n} was {a}, the {m} {v} {l}.|Some people {v} the {n} {d}, others {v} the {m}.|It was a {a} {o}, and the {n} was {b}.
There were {z} {n}s {l}, and most of them were {a}.|We {v} {z} {n}s and a {a} {m}.|They {d} {v} the {a} {n}, because the {m} was {b}.
After the {n}, the {m} {v} everything {l}.|Why the {n} {v} the {m} is not {a}.|The {o} {v} a {n}, a {m} and a {a} {k}.
If the {n} is {a}, the {m} must be {b}.|The {a} {n} {l} was {d} {v}.|I {d} {v} a {n} like this one.|She {v} the {n} and {v} the {m}.
He {v} his {n} {l}.|They {v} their {m}, their {n} and their {a} {k}.|Although the {n} was {a}, the {m} stayed {b}.
The story of the {a} {n} is {b}.|People {d} talk about the {n} {l}.|A {a} {n} can be {b}, too.|What a {a} {n}!
Who {v} the {n} {l}?|The more {a} the {n}, the more {b} the {m}.|Between the {n} and the {m} stood a {a} {o}.
It took {z} {k}s until the {n} was {a}.|In the {n} lay a {a} {m}.|Then the {n} {v} the {m}, and the {o} {v} the {k}.
{D} the {n} {v}, {d} the {m} {v}.|Not every {a} {n} has a {m}.|The {n} {v} {z} {m}s in one {o}.|Both the {n} and the {m} {v} the {k}.
For a {o} the {n} was {a}, then {b}.|The {n}, the {m} and the {a} {k} {v} {l}.|The {n} was {v} by a {a} {m}.
{W} {v} the {a} {n} {l}.|{W} and {X} {v} a {n}.|{D} {W} {v} {z} {n}s.|In {W}, the {n} is {a} in {o}.|{W} never {v} the {m} of {X}.
The {n} of the {m} was {a}.|The {n} had a {a} {m}.|One {n} opens, another closes, and the {m} stays {a}.|The price of {n}s rose to {z}.
The {m} costs more than the {n}.|It was {t} when the {n} {v} the {m}.|At {t} the {m} was still {a}."""
_TEMPLATES = [part.strip() for line in _SENTENCES.splitlines() for part in line.split("|")]


def _time(rng) -> str:
    hour, minute = int(rng.random() * 24), int(rng.random() * 60)
    style = rng.random()
    if style < 0.6:
        return f"{hour}:{minute:02d}"
    if style < 0.75:
        return f"{hour:02d}:{minute:02d}"
    return f"{hour % 12 + 1}:{minute:02d} {'am' if hour < 12 else 'pm'}"


def _made_up(rng) -> str:
    """Usually syllables; sometimes random letters or an English word, so that any name is possible."""
    style = rng.random()
    if style < 0.12:
        letters = "".join(
            pick(rng, _CONSONANTS) * (2 if rng.random() < 0.1 else 1) + pick(rng, _VOWELS)
            for _ in range(1 + int(rng.random() * 3))
        )
        start = pick(rng, _VOWELS) if rng.random() < 0.4 else ""
        return (start + letters + (pick(rng, _CONSONANTS) if rng.random() < 0.5 else "")).capitalize()
    if style < 0.2:
        return (
            (pick(rng, ADJECTIVES) + " " + pick(rng, NOUNS)).title()
            if style < 0.15
            else pick(rng, NOUNS).capitalize() + pick(rng, _SYLLABLES)
        )
    if style < 0.24:
        return pick(rng, _SYLLABLES).capitalize() + "".join(
            pick(rng, _CONSONANTS + _VOWELS) for _ in range(2 + int(rng.random() * 3))
        )
    text = pick(rng, _SYLLABLES) + pick(rng, _SYLLABLES)
    if rng.random() < 0.35:
        text += pick(rng, _SYLLABLES)
    return text.capitalize()


def _sentence(rng, split: str) -> str:
    """One sentence of prose, with names of the split."""
    template = pick(rng, _TEMPLATES)
    noun = partial(pick, rng, NOUNS)
    first, second = noun(), noun()
    fields = {
        "a": pick(rng, ADJECTIVES), "b": pick(rng, ADJECTIVES), "n": first, "m": second, "o": noun(), "k": noun(),
        "v": pick(rng, VERBS), "d": pick(rng, ADVERBS), "z": int(rng.random() * 90) + 2, "l": "", "D": "", "W": "", "X": "", "t": "",
    }  # fmt: skip
    if "{l}" in template:
        fields["l"] = pick(rng, PLACES).format(n=noun(), m=noun())
    if "{D}" in template:
        fields["D"] = pick(rng, ADVERBS).capitalize()
    if "{W}" in template:
        fields["W"], fields["X"] = draw(rng, split, _made_up), draw(rng, split, _made_up)
    if "{t}" in template:
        fields["t"] = draw(rng, split, _time)
    return template.format(**fields)


def _listing(rng) -> str:
    items = [f"{i + 1}. {pick(rng, ADJECTIVES)} {pick(rng, NOUNS)}" for i in range(3 + int(rng.random() * 8))]
    return "\n".join(items)


def _table(rng) -> str:
    rows = [
        f"{pick(rng, NOUNS)};{int(rng.random() * 1000)};{pick(rng, ADJECTIVES)}"
        for _ in range(3 + int(rng.random() * 6))
    ]
    return "\n".join(rows)


def _pseudo_words(rng) -> str:
    text = " ".join(
        "".join(pick(rng, _SYLLABLES) for _ in range(1 + int(rng.random() * 3)))
        for _ in range(8 + int(rng.random() * 20))
    )
    return text.capitalize() + "."


_RANGES = [(0x00C0, 0x017F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0x0600, 0x06FF),
           (0x1F300, 0x1F5FF), (0x21, 0x7E)]  # fmt: skip


def _odd_script(rng) -> str:
    """Letters of another alphabet, in words of random length."""
    low, high = pick(rng, _RANGES)
    words = (
        "".join(chr(low + int(rng.random() * (high - low))) for _ in range(1 + int(rng.random() * 6)))
        for _ in range(2 + int(rng.random() * 8))
    )
    return " ".join(words)


def paragraph(rng, split: str, sentences: int) -> str:
    """About this many sentences, or sometimes a list, a table, invented words or another alphabet.

    Without questions, which would want an answer.
    """
    while "?" in (text := _paragraph(rng, split, sentences)):
        pass
    return text


def _paragraph(rng, split: str, sentences: int) -> str:
    style = rng.random()
    if style < 0.03:
        return _listing(rng)
    if style < 0.05:
        return _table(rng)
    if style < 0.08:
        return _pseudo_words(rng)
    if style < 0.09:
        return _odd_script(rng)
    return " ".join(_sentence(rng, split) for _ in range(sentences))
