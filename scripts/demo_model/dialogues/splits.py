"""Assigns names, values and phrasings to training, validation and test by a hash, so that the splits are disjoint."""

import re
from zlib import crc32

SPLITS = ("train", "validation", "test")


def split_of(text: str) -> str:
    """The split of a string: 80 % of all strings are train, 10 % validation, 10 % test."""
    bucket = crc32(text.encode()) % 10
    return "train" if bucket < 8 else SPLITS[bucket - 7]


# Words that say nothing about a relation, so a held-out template may use them.
FUNCTION_WORDS = set(
    "a an the of in on at by for to from with and or is was are be been it its you your i we they their people one who whom "
    "what which when where how do does did has have had that this as so up out into can must will than all most every".split()
)


def content_words(template: str) -> set[str]:
    """The words of a template except function words; [open] stands for both "open" and "opens"."""
    text = re.sub(r"\[(\w+)\]", lambda verb: f"{verb[1]} {third_person(verb[1])}", re.sub(r"\{\w+\}", " ", template))
    return set(re.findall(r"[a-z'-]+", text.lower())) - FUNCTION_WORDS


def third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "o")):
        return verb + "es"
    return verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeou" else verb + "s"


def divide(templates: list[str], known: set[str] = frozenset()) -> dict[str, list[str]]:
    """Distribute templates among the splits by hash: about a fifth to test, a tenth to validation, at least one to each.

    A template is held out only if training has all its content words, in another template or in `known`: a model that is
    trained on nothing else cannot know a new word. New in a held-out template is the order of words.
    """
    ranked = sorted(set(templates), key=lambda text: crc32(b"phrasing " + text.encode()))
    if len(ranked) < 3:
        raise ValueError(f"templates is {ranked}; expected at least 3 templates for three splits")
    words = {template: content_words(template) for template in ranked}
    held: list[str] = []
    target = max(1, round(0.2 * len(ranked))) + max(1, round(0.1 * len(ranked)))
    for strict in (True, False):
        for template in ranked:
            rest = set(known).union(*(words[t] for t in ranked if t not in held and t != template))
            if (
                len(held) < (target if strict else 2)
                and template not in held
                and (words[template] <= rest or not strict)
            ):
                held.append(template)
    test = [t for i, t in enumerate(held) if i % 3 != 1]
    return {
        "test": test,
        "validation": [t for t in held if t not in test],
        "train": [t for t in ranked if t not in held],
    }


def pick(rng, items):
    """As rng.choice, without its overhead: training consumes half a million tokens per second."""
    return items[int(rng.random() * len(items))]


def draw(rng, split: str, make):
    """The first result of make(rng) that belongs to the split."""
    while True:
        text = make(rng)
        if split_of(text) == split:
            return text
