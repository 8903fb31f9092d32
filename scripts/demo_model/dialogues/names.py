"""Names: half of them real, half invented. Invented ones belong to a split, by a hash."""

from .splits import draw, pick
from .texts import LISTS

_ONSETS = "b br ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w y z".split()
_RIMES = "a al an ar ell em en er i il in ir o ol on or u ul um un ay ie ost ash ick eek oon us ax ia eo".split()
SYLLABLES = [onset + rime for onset in _ONSETS for rime in _RIMES]
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"
GIVEN = LISTS["first_names"]
_ACCENTS = {
    "a": "áàâäãåā", "e": "éèêëēę", "i": "íìîïī", "o": "óòôöõøō", "u": "úùûüū", "c": "çćč", "n": "ñńň", "s": "šśş", "z": "žźż", "y": "ýÿ", "l": "ł", "r": "ř", "d": "ď", "g": "ğ", "t": "ť",
    "A": "ÁÀÂÄÅ", "E": "ÉÈÊ", "I": "ÍÎ", "O": "ÓÖØ", "U": "ÚÜ", "C": "ÇČ", "S": "ŠŚ", "Z": "ŽŻ", "N": "Ñ", "L": "Ł",
}  # fmt: skip


def _syllables(rng) -> str:
    """Usually syllables; sometimes random letters or an English word with an ending, so that any name is possible."""
    style = rng.random()
    if style < 0.15:
        letters = "".join(
            pick(rng, CONSONANTS) * (2 if rng.random() < 0.1 else 1) + pick(rng, VOWELS)
            for _ in range(1 + int(rng.random() * 3))
        )
        start = pick(rng, VOWELS) if rng.random() < 0.4 else ""
        return (start + letters + (pick(rng, CONSONANTS) if rng.random() < 0.5 else "")).capitalize()
    if style < 0.22:
        return pick(rng, LISTS["objects"]).split()[-1].capitalize() + pick(rng, SYLLABLES)
    if style < 0.27:
        rest = "".join(pick(rng, CONSONANTS + VOWELS) for _ in range(2 + int(rng.random() * 3)))
        return pick(rng, SYLLABLES).capitalize() + rest
    if style < 0.3:
        return pick(rng, SYLLABLES).capitalize() + "-" + pick(rng, SYLLABLES)
    text = pick(rng, SYLLABLES) + pick(rng, SYLLABLES)
    return (text + (pick(rng, SYLLABLES) if rng.random() < 0.35 else "")).capitalize()


def word(rng, split: str) -> str:
    """A capitalised invented word."""
    return draw(rng, split, _syllables)


def given(rng, split: str) -> str:
    return pick(rng, GIVEN) if rng.random() < 0.6 else word(rng, split)


def surname(rng, split: str) -> str:
    return pick(rng, LISTS["surnames"]) if rng.random() < 0.5 else word(rng, split)


def town(rng, split: str) -> str:
    style = rng.random()
    if style < 0.45:
        return pick(rng, LISTS["towns"])
    name = word(rng, split)
    if style < 0.7:
        return name
    return pick(rng, ["{}ton", "{}ville", "{}burg", "{}ford", "Port {}", "Lake {}", "{} Bay", "New {}"]).format(name)


def accented(rng, text: str) -> str:
    """A name with one to three accents in its last word, most often on a word's last letter: "Café Lumen"."""
    before, _, last = text.rpartition(" ")
    if not last[:1].isupper():
        return text
    letters = list(last)
    able = [n for n, letter in enumerate(letters) if letter in _ACCENTS]
    for _ in range(1 + int(rng.random() * 2.2) if able else 0):
        at = able[-1] if rng.random() < 0.5 else pick(rng, able)
        letters[at] = pick(rng, _ACCENTS.get(letters[at], letters[at]))
    return f"{before} {''.join(letters)}".strip()
