"""Assigns names, values and phrasings to training, validation and test by a hash, so that the splits are disjoint."""

from collections.abc import Sequence
from zlib import crc32

SPLITS = ("train", "validation", "test")
Forms = dict[str, tuple[str, ...]]  # by split


def split_of(text: str) -> str:
    """The split of a string: 80 % of all strings are train, 10 % validation, 10 % test."""
    bucket = crc32(text.encode()) % 10
    return "train" if bucket < 8 else SPLITS[bucket - 7]


def divide(forms: Sequence[str], where: str) -> Forms:
    return {split: tuple(form for form in forms if split_of(f"{where} {form}") == split) for split in SPLITS}


def share(forms: Sequence[str], where: str) -> Forms:
    """As `divide`, but of four forms or more one is of the test split and one of the validation split; fewer are of training."""
    ranked = sorted(forms, key=lambda form: crc32(f"{where} {form}".encode()))
    if len(ranked) < 4:
        return {"train": tuple(forms), "validation": (), "test": ()}
    train = tuple(form for form in forms if form not in ranked[:2])
    return {"test": (ranked[0],), "validation": (ranked[1],), "train": train}


def own(forms: Forms, split: str) -> tuple[str, ...]:
    """The forms of a split, or of training where it has none."""
    return forms[split] or forms["train"]


def pick(rng, items):
    """As rng.choice, without its overhead: training consumes half a million tokens per second."""
    return items[int(rng.random() * len(items))]


def below(rng, number: int) -> int:
    return int(rng.random() * number)


def draw(rng, split: str, make):
    """The first result of make(rng) that belongs to the split."""
    while True:
        text = make(rng)
        if split_of(text) == split:
            return text
