"""Unrelated text between facts: that of the shipped demo's generator, without its questions, which would want an answer."""

from random import Random

from ..conversations import filler


def paragraph(rng: Random, split: str, sentences: int) -> str:
    """About this many sentences of prose, or a list, a table, pseudo-words."""
    while "?" in (text := filler.paragraph(rng, split, sentences)):
        pass
    return text
