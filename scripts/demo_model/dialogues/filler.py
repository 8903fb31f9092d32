"""Unrelated text between facts: prose from a small grammar, lists, invented words, other scripts. It states no fact about a named entity."""

from functools import partial

from . import manners, names, values
from .splits import below, draw, pick
from .texts import LISTS, sections
from .values import capital

_TEMPLATES = sections("frames")["filler"]


def _name(rng) -> str:
    style = rng.random()
    if style < 0.12:
        return f"{pick(rng, LISTS['text_adjectives'])} {pick(rng, LISTS['text_nouns'])}".title()
    return "".join(pick(rng, names.SYLLABLES) for _ in range(2 + below(rng, 2))).capitalize()


def _sentence(rng, split: str) -> str:
    """One sentence of prose, with names of the split."""
    template, noun, adverb = (
        pick(rng, _TEMPLATES),
        partial(pick, rng, LISTS["text_nouns"]),
        pick(rng, LISTS["text_adverbs"]),
    )
    fields = {
        "a": pick(rng, LISTS["text_adjectives"]), "b": pick(rng, LISTS["text_adjectives"]), "n": noun(), "m": noun(), "o": noun(), "k": noun(), "v": pick(rng, LISTS["text_verbs"]), "d": adverb,
        "z": below(rng, 90) + 2, "l": "", "D": capital(adverb), "W": "", "X": "", "t": "",
    }  # fmt: skip
    if "{l}" in template:
        fields["l"] = pick(rng, LISTS["text_places"]).format(n=noun(), m=noun())
    if "{W}" in template:
        fields["W"], fields["X"] = draw(rng, split, _name), draw(rng, split, _name)
    if "{t}" in template:
        fields["t"] = values.clock(rng, split)
    return template.format(**fields)


def paragraph(rng, split: str, sentences: int) -> str:
    """About this many sentences, or sometimes a list, invented words or another alphabet. Without questions, which would want an answer."""
    style = rng.random()
    if style < 0.03:
        text = "\n".join(
            f"{n + 1}. {pick(rng, LISTS['text_adjectives'])} {pick(rng, LISTS['text_nouns'])}"
            for n in range(3 + below(rng, 8))
        )
    elif style < 0.06:
        text = capital(" ".join(_name(rng).lower() for _ in range(8 + below(rng, 20)))) + "."
    elif style < 0.07:
        text = manners.script(rng)
    else:
        text = " ".join(_sentence(rng, split) for _ in range(sentences))
    return paragraph(rng, split, sentences) if "?" in text else text
