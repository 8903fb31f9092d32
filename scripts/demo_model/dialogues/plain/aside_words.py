"""Spellings of names that are rare in other families: letters with accents anywhere in a word, and names of several words joined by "&" or "and"."""

from .. import texts
from ..splits import pick
from . import remark_values
from .remark_values import name

_ACCENTS = {
    "a": "áàâäãåā", "e": "éèêëēę", "i": "íìîïī", "o": "óòôöõøō", "u": "úùûüū", "c": "çćč", "n": "ñńň", "s": "šśş", "z": "žźż", "y": "ýÿ", "l": "ł", "r": "ř", "d": "ď", "g": "ğ", "t": "ť",
    "A": "ÁÀÂÄÅ", "E": "ÉÈÊ", "I": "ÍÎ", "O": "ÓÖØ", "U": "ÚÜ", "C": "ÇČ", "S": "ŠŚ", "Z": "ŽŻ", "N": "Ñ", "L": "Ł",
}  # fmt: skip
FRAMES = {
    name_: forms.split("|")
    for name_, forms in (
        part.strip("\n").split("\n", 1) for part in texts.read("asides").removeprefix("@ ").split("\n@ ")
    )
}
# Kinds of values that are names: they may be quoted, joined and accented.
NAMES = frozenset("band title eatery petname name team company org school festival".split())
PEOPLE = frozenset("person firstname titled town street".split())


def accented(rng, text: str) -> str:
    """One to three letters with accents, most often also the last letter of a word: "Café Lumen"."""
    letters = list(text)
    able = [n for n, letter in enumerate(letters) if letter in _ACCENTS]
    last = [n for n in able if n + 1 == len(letters) or not letters[n + 1].isalpha()]
    for _ in range(1 + int(rng.random() * 2.2)):
        at = pick(rng, last if last and rng.random() < 0.5 else able) if able else None
        if at is not None and letters[at] in _ACCENTS:
            letters[at] = pick(rng, _ACCENTS[letters[at]])
    return "".join(letters)


def decorated(rng, text: str, share: float = 0.07) -> str:
    return accented(rng, text) if rng.random() < share else text


def accented_name(rng, text: str) -> str:
    """The last word with accents, if it is a name."""
    before, _, last = text.rpartition(" ")
    return f"{before} {accented(rng, last)}".strip() if last[:1].isupper() else text


def joined_name(rng, split: str) -> str:
    """Names of several words: "Sugar & Soot" is one value."""
    one, other = name(rng, split), pick(rng, FRAMES["second_words"]) if rng.random() < 0.5 else name(rng, split)
    return pick(rng, [
        f"{one} & {other}", f"{one} & {other}", f"{one} and {other}", f"The {one} and the {other}", f"{one}, {other} & Co", f"{one} + {other}", f"{one} of {other}", f"The {one} {other}", f"{one} n' {other}",
        f"{one} & the {other}s", f"{one}-{other}", f"{one}'s {other}", f"{one} at the {other}", f"{one} {other} {name(rng, split)}", f"{one} with {other}", f"{one} / {other}", f"{one} for {other}s", f"{one} or {other}",
    ])  # fmt: skip


def named_value(rng, split: str, kind: str) -> str:
    """As `remark_values.value`, with more of these spellings."""
    if kind in NAMES and rng.random() < 0.3:
        return decorated(rng, joined_name(rng, split), 0.1)
    made = remark_values.value(rng, split, kind)
    return decorated(rng, made) if kind in NAMES or kind in PEOPLE else made
