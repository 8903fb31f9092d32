"""Which names, values and phrasings belong to training, validation and test: decided by a hash, so the sets cannot meet."""

import re
from zlib import crc32

SPLITS = ("train", "validation", "test")


def split_of(text: str) -> str:
    """80 % of all strings are train, 10 % validation, 10 % test; the same string always falls on the same side."""
    bucket = crc32(text.encode()) % 10
    return "train" if bucket < 8 else SPLITS[bucket - 7]


# Words that carry no relation: a held-out template may use them freely.
FUNCTION_WORDS = set(
    "a an the of in on at by for to from with and or is was are be been it its you your i we they their people one who whom "
    "what which when where how do does did has have had that this as so up out into can must will than all most every".split()
)


def content_words(template: str) -> set[str]:
    """The words of a template that mean something; [open] stands for both "open" and "opens"."""
    text = re.sub(r"\[(\w+)\]", lambda verb: f"{verb[1]} {third_person(verb[1])}", re.sub(r"\{\w+\}", " ", template))
    return set(re.findall(r"[a-z'-]+", text.lower())) - FUNCTION_WORDS


def third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "o")):
        return verb + "es"
    return verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeou" else verb + "s"


def divide(templates: list[str], known: set[str] = frozenset()) -> dict[str, list[str]]:
    """Deal templates to the splits by hash: about a fifth to test, a tenth to validation, at least one each.

    A template is held out only if every content word of it stays in training, in another template or among `known`: a model
    that knows no text but this cannot guess a word it never met. The order of words, the frame, is what is new.
    """
    ranked = sorted(set(templates), key=lambda text: crc32(b"phrasing " + text.encode()))
    if len(ranked) < 3:
        raise ValueError(f"{len(ranked)} templates cannot be divided into three splits: {ranked}")
    words = {template: content_words(template) for template in ranked}
    held: list[str] = []
    wanted = max(1, round(0.2 * len(ranked))) + max(1, round(0.1 * len(ranked)))
    for strict in (True, False):
        for template in ranked:
            rest = set(known).union(*(words[t] for t in ranked if t not in held and t != template))
            if (
                len(held) < (wanted if strict else 2)
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
    """rng.choice without its overhead: the generator has to feed half a million tokens a second."""
    return items[int(rng.random() * len(items))]


def draw(rng, split: str, make):
    """Call make(rng) until its result belongs to the split."""
    while True:
        text = make(rng)
        if split_of(text) == split:
            return text
