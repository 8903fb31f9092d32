"""Unrelated text: prose from a small grammar, lists, tables, other scripts. It states no fact about a named entity."""

from ..conversations.splits import pick
from ..conversations.words import ADJECTIVES, ADVERBS, NOUNS, PLACES, VERBS
from . import names, values

_SENTENCES = """The {a} {n} {v} the {m} {l}.|{D}, a {n} {v} the {a} {m}.|Nobody {v} the {n}, but the {m} was {a}.
Every {n} needs a {a} {m}.|A {n} without a {m} is like a {o} without a {k}.|The {n} and the {m} were {a} and {b}.
When the {n} was {a}, the {m} {v} {l}.|Some people {v} the {n} {d}, others {v} the {m}.|It was a {a} {o}, and the {n} was {b}.
There were {z} {n}s {l}, and most of them were {a}.|We {v} {z} {n}s and a {a} {m}.|They {d} {v} the {a} {n}, because the {m} was {b}.
After the {n}, the {m} {v} everything {l}.|Why the {n} {v} the {m} is not {a}.|The {o} {v} a {n}, a {m} and a {a} {k}.
If the {n} is {a}, the {m} must be {b}.|The {a} {n} {l} was {d} {v}.|I {d} {v} a {n} like this one.|She {v} the {n} and {v} the {m}.
He {v} his {n} {l}.|They {v} their {m}, their {n} and their {a} {k}.|Although the {n} was {a}, the {m} stayed {b}.
The story of the {a} {n} is {b}.|People {d} talk about the {n} {l}.|A {a} {n} can be {b}, too.|What a {a} {n}!
The more {a} the {n}, the more {b} the {m}.|Between the {n} and the {m} stood a {a} {o}.
It took {z} {k}s until the {n} was {a}.|In the {n} lay a {a} {m}.|Then the {n} {v} the {m}, and the {o} {v} the {k}.
{D} the {n} {v}, {d} the {m} {v}.|Not every {a} {n} has a {m}.|The {n} {v} {z} {m}s in one {o}.|Both the {n} and the {m} {v} the {k}.
For a {o} the {n} was {a}, then {b}.|The {n}, the {m} and the {a} {k} {v} {l}.|The {n} was {v} by a {a} {m}.
{W} {v} the {a} {n} {l}.|{W} and {X} {v} a {n}.|{D} {W} {v} {z} {n}s.|In {W}, the {n} is {a} in {o}.|{W} never {v} the {m} of {X}.
The {n} of the {m} was {a}.|The {n} had a {a} {m}.|One {n} opens, another closes, and the {m} stays {a}.|The price of {n}s rose to {z}.
The {m} costs more than the {n}.|It was {t} when the {n} {v} the {m}.|At {t} the {m} was still {a}."""
_TEMPLATES = [part.strip() for line in _SENTENCES.splitlines() for part in line.split("|")]


def sentence(rng, split: str) -> str:
    """One sentence of prose, with names of the split."""
    template = pick(rng, _TEMPLATES)
    noun = lambda: pick(rng, NOUNS)  # noqa: E731
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
        fields["W"], fields["X"] = names.word(rng, split), names.word(rng, split)
    if "{t}" in template:
        fields["t"] = values.value(rng, split, "time")
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
        "".join(pick(rng, names.SYLLABLES) for _ in range(1 + int(rng.random() * 3)))
        for _ in range(8 + int(rng.random() * 20))
    )
    return text.capitalize() + "."


_RANGES = [(0x00C0, 0x017F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0x0600, 0x06FF),
           (0x1F300, 0x1F5FF), (0x21, 0x7E)]  # fmt: skip


def odd_script(rng) -> str:
    """Letters of another alphabet, in words of random length."""
    low, high = pick(rng, _RANGES)
    words = (
        "".join(chr(low + int(rng.random() * (high - low))) for _ in range(1 + int(rng.random() * 6)))
        for _ in range(2 + int(rng.random() * 8))
    )
    return " ".join(words)


def paragraph(rng, split: str, sentences: int) -> str:
    """Several sentences, or sometimes a list, a table, invented words or another alphabet."""
    style = rng.random()
    if style < 0.03:
        return _listing(rng)
    if style < 0.05:
        return _table(rng)
    if style < 0.08:
        return _pseudo_words(rng)
    if style < 0.09:
        return odd_script(rng)
    return " ".join(sentence(rng, split) for _ in range(sentences))
