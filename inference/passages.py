"""Passages of the context, and where an answer was found: the token, the layer and the passage with which the inspector opens."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

LONGEST = 40  # tokens; a longer sentence counts as several passages
BEST = 16  # of the positions selected for a token; the others only fill the index_topk
SINK = 4  # the first tokens attract attention whatever they say
_END = re.compile("[.!?\u3002\uff01\uff1f][\"')]?\\s*$|\\n\\s*$")  # also the full-width marks of Chinese
_MARKS = ".,;:!?\"'()[]{}“”‘’«»„…*`"  # noqa: RUF001 - around a word, not in it

Passage = tuple[int, int]  # tokens [first, after the last)


class Story(NamedTuple):
    """The place where an answer, or a word of it, was found."""

    token: int  # index in the answer
    layer: int
    passage: Passage


class Word(NamedTuple):
    """A whole word of an answer, and what was read to write it."""

    text: str
    tokens: tuple[int, int]  # of the answer: [first, after the last)
    story: Story | None  # None if no earlier passage was read for it
    copied: bool  # the word stands in that passage


def find_passages(texts: Sequence[str], control: Collection[int]) -> list[Passage]:
    """Sentences, and pieces of long ones, of a text whose tokens are `texts`. `control`: positions of control tokens, left out."""
    passages, start = [], 0
    for position, text in enumerate(texts):
        is_control = position in control
        stop = position if is_control else position + 1
        if is_control or _END.search(text) or stop - start >= LONGEST or stop == len(texts):
            if "".join(texts[start:stop]).strip():
                passages.append((start, stop))
            start = position + 1
    return passages


def find_words(texts: Sequence[str]) -> list[tuple[str, int, int]]:
    """Words of a text whose tokens are `texts`, without marks at their ends, each with its tokens [first, after the last)."""
    owner = [i for i, text in enumerate(texts) for _ in text]
    words = []
    for found in re.finditer(r"\S+", "".join(texts)):
        text = found.group()
        left = len(text) - len(text.lstrip(_MARKS))
        text = text.strip(_MARKS)
        if any(map(str.isalnum, text)):
            start = found.start() + left
            words.append((text, owner[start], owner[start + len(text) - 1] + 1))
    return words


def find_sources(
    passages: Sequence[Passage],
    tokens: Sequence[int],
    answer: Sequence[int],
    words: Sequence[bool],
    scored: Callable[[int, int], tuple[np.ndarray, np.ndarray] | None],
    layers: int,
) -> dict[int, tuple[float, Story]]:
    """For tokens of the answer, the layer whose best scored positions lie closest together in one earlier passage, and how close.

    passages: those before the question. tokens: all ids of prompt and answer. words[i]: whether answer token i has a letter or a
    digit; the others, white space and marks, are left out. scored(i, layer): the positions selected for answer token i and
    their scores, None where the layer had no choice. A token that stands in the passage counts more than
    another, and one that the question lacks more than one that merely repeats it.
    """
    if not passages:
        return {}
    end = passages[-1][1]
    owner = np.full(end, -1)
    for number, (start, stop) in enumerate(passages):
        owner[start:stop] = number
    question = set(tokens[end : len(tokens) - len(answer)])
    ids = np.array(tokens[:end])
    sources: dict[int, tuple[float, Story]] = {}
    for i, token in enumerate(answer):
        if not words[i]:
            continue
        copied = set(owner[ids == token].tolist())
        for layer in range(layers):
            found = scored(i, layer)
            if found is None:
                continue
            positions, scores = found
            chosen = np.argsort(-scores)[:BEST]
            weights = (scores[chosen] - scores.min()) / max(float(scores[chosen[0]] - scores.min()), 1e-9)
            places = positions[chosen]
            earlier = (places >= SINK) & (places < end)
            numbers = owner[places[earlier]]
            inside = np.bincount(numbers[numbers >= 0], weights[earlier][numbers >= 0], minlength=len(passages))
            number = int(inside.argmax())
            value = inside[number] / weights.sum()
            value *= (1.0 if number in copied else 0.5) * (0.7 if token in question else 1.0)
            if value > sources.get(i, (0.0, None))[0]:
                sources[i] = float(value), Story(i, layer, passages[number])
    return sources
