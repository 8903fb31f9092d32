"""Errands and reasons of everyday scenes."""

from . import names
from .everyday_things import any_noun
from .everyday_words import (
    ACTIVITIES,
    ERRANDS,
)
from .lexicon import (
    ADJECTIVES,
    FOODS,
    TRANSITIVES,
)
from .splits import pick


def fill(form: str, rng, split) -> str:
    if "{" not in form:
        return form
    return form.format(o=any_noun(rng, split), p=names.given(rng, split), a=pick(rng, ADJECTIVES), f=pick(rng, FOODS))


def verb_phrase(rng, split) -> str:
    draw = rng.random()
    if draw < 0.4:
        return fill(pick(rng, ERRANDS), rng, split)
    verb, noun = pick(rng, TRANSITIVES)[0], any_noun(rng, split)
    if draw < 0.75:
        return (
            f"{verb} {pick(rng, ['the', 'the', 'a', 'my', 'an old'])} {pick(rng, [pick(rng, ADJECTIVES) + ' ', ''])}{noun}".replace(
                " a a", " an a"
            )
            .replace(" a e", " an e")
            .replace(" a o", " an o")
            .replace(" a i", " an i")
            .replace(" a u", " an u")
        )
    return pick(
        rng,
        [
            f"move to {names.town(rng, split)}",
            f"visit {names.given(rng, split)}",
            f"learn {pick(rng, ['Spanish', 'Polish', 'Latin', 'Dutch', 'Welsh', 'Greek'])}",
            f"call {names.given(rng, split)}",
            f"go {pick(rng, ACTIVITIES)}",
            f"write to {names.given(rng, split)}",
            f"travel to {names.town(rng, split)}",
            f"study {pick(rng, ['law', 'medicine', 'physics', 'art', 'music', 'history'])}",
            f"become a {pick(rng, ['baker', 'nurse', 'pilot', 'farmer', 'painter', 'judge'])}",
        ],
    )
