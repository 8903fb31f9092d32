"""Names: half of them real, half invented. Invented ones belong to a split, by a hash."""

from .lexicon import ADJECTIVES, ANIMALS, FIRST_NAMES, OBJECTS, SURNAMES, TOWNS
from .splits import draw, pick

_ONSETS = "b br ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w y z".split()
_RIMES = "a al an ar ell em en er i il in ir o ol on or u ul um un ay ie ost ash ick eek oon us ax ia eo".split()
SYLLABLES = [onset + rime for onset in _ONSETS for rime in _RIMES]
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"
GIVEN = FIRST_NAMES


def _syllables(rng) -> str:
    """Usually syllables; sometimes random letters or an English word with an ending, so that any name is possible."""
    style = rng.random()
    if style < 0.15:
        letters = "".join(
            pick(rng, _CONSONANTS) * (2 if rng.random() < 0.1 else 1) + pick(rng, _VOWELS)
            for _ in range(1 + int(rng.random() * 3))
        )
        start = pick(rng, _VOWELS) if rng.random() < 0.4 else ""
        return (start + letters + (pick(rng, _CONSONANTS) if rng.random() < 0.5 else "")).capitalize()
    if style < 0.22:
        return pick(rng, OBJECTS).split()[-1].capitalize() + pick(rng, SYLLABLES)
    if style < 0.27:
        return pick(rng, SYLLABLES).capitalize() + "".join(
            pick(rng, _CONSONANTS + _VOWELS) for _ in range(2 + int(rng.random() * 3))
        )
    if style < 0.3:
        return pick(rng, SYLLABLES).capitalize() + "-" + pick(rng, SYLLABLES)
    text = pick(rng, SYLLABLES) + pick(rng, SYLLABLES)
    if rng.random() < 0.35:
        text += pick(rng, SYLLABLES)
    return text.capitalize()


def word(rng, split: str) -> str:
    """A capitalised invented word."""
    return draw(rng, split, _syllables)


def given(rng, split: str) -> str:
    return pick(rng, FIRST_NAMES) if rng.random() < 0.6 else word(rng, split)


def surname(rng, split: str) -> str:
    return pick(rng, SURNAMES) if rng.random() < 0.5 else word(rng, split)


def town(rng, split: str) -> str:
    style = rng.random()
    if style < 0.45:
        return pick(rng, TOWNS)
    name = word(rng, split)
    return (
        name
        if style < 0.7
        else pick(
            rng, ["{}ton", "{}ville", "{}burg", "{}ford", "Port {}", "Lake {}", "{} Bay", "Mount {}", "New {}"]
        ).format(name)
    )


def animal_name(rng, split: str) -> str:
    return f"{given(rng, split)} the {pick(rng, ANIMALS)}"


def product(rng, split: str) -> str:
    return f"the {word(rng, split)} {pick(rng, ADJECTIVES) + ' ' if rng.random() < 0.2 else ''}{pick(rng, OBJECTS)}"
