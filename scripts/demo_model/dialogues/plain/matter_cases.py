"""Matters of everyday life in the words of four writers: texts/matters_*.txt, in the format of texts/remarks.txt.

A further line makes a kind of values, of which most are as listed:
    = name | value; …
"""

import re

from .. import names, texts
from ..splits import SPLITS, pick
from . import remark_values, topics
from .remark_cases import Case, Pool, parse
from .remark_values import WORDS

AREAS = ("home", "work", "leisure", "people")
_MORE = "old new big small plain cheap odd spare second other local fancy dusty green blue broken heavy light long short special extra quiet bright simple late early".split()
_DETERMINERS = frozenset("a an the my our his her their some this that your".split())
_PLACES = frozenset("in on at by under behind near beside inside outside opposite above below next between to into from with over across around past through off up down".split())  # fmt: skip
_WITHOUT_ON = frozenset("next this last tomorrow today tonight yesterday every".split())
_BEFORE = re.compile(r"\b([\w']+) \{(\w)\}")  # a value and the word before it


def _read(area: str) -> tuple[list[Case], dict[str, tuple[str, ...]]]:
    cases, kinds = [], {}
    for block in re.split(r"\n\s*\n", texts.read(f"matters_{area}").strip()):
        lines = [line for line in block.splitlines() if line.strip()]
        for line in (line for line in lines if line.startswith("= ")):
            name, listed = line[2:].split(" | ")
            kinds[name.strip()] = topics._list(listed)
        if lines := [line for line in lines if not line.startswith("= ")]:
            cases.append(parse("\n".join(lines), area, topics._divide))
    return cases, kinds


_ALL = [_read(area) for area in AREAS]
CASES = {case.name: case for cases, _ in _ALL for case in cases}
KINDS = {name: listed for _, kinds in _ALL for name, listed in kinds.items()}


def varied(rng, split: str, text: str) -> str:
    """A listed value with another word in it, so that any value must be copied."""
    first, *rest = text.split()
    more = pick(rng, _MORE) if rng.random() < 0.4 else pick(rng, WORDS) if rng.random() < 0.5 else names.word(rng, split).lower()  # fmt: skip
    if more in text.split() or re.search(r"(ing|ed|ly)$", first):  # "washed by hand"
        return text
    if re.search(r"\d", text):
        return re.sub(r"\d+", lambda match: str(10 ** (len(match[0]) - 1) + int(rng.random() * 9 * 10 ** (len(match[0]) - 1))), text)  # fmt: skip
    at = next((n + 1 for n, word in enumerate((first, *rest)) if word in _DETERMINERS), 0)
    if at and at < len(rest) + 1:
        words = [first, *rest]
        if words[at][:1].isupper():
            words[at] = names.word(rng, split)
        else:
            words.insert(at, more)
        if words[at - 1] in ("a", "an"):
            words[at - 1] = _article(words[at])
        return " ".join(words)
    if first[:1].isupper():
        return " ".join([names.word(rng, split), *rest]) if rest or rng.random() < 0.5 else f"{first} {names.word(rng, split)}"  # fmt: skip
    return f"{more} {text}"


def value(rng, split: str, kind: str) -> str:
    """A value of a kind that the matters list, or of `remark_values.value`."""
    listed = KINDS.get(kind)
    if listed is None:
        return remark_values.value(rng, split, kind)
    text = pick(rng, listed)
    return varied(rng, split, text) if rng.random() < 0.34 else text


def said(form: str, fields: dict[str, str]) -> str:
    """The form with its values. What a value begins with is not said twice: "on {d}" with "next Friday", "a {y}" with "two lamps"."""

    def fitted(match: re.Match) -> str:
        before, slot = match[1], "{" + match[2] + "}"
        first, *rest = fields[match[2]].split() or [""]
        low, number = first.lower(), before in ("a", "an")
        twice = low == before or (before in _DETERMINERS and low in _DETERMINERS) or (number and _many(first, rest))
        if before in ("on", "in", "at"):
            twice = low in _PLACES or (before == "on" and low in _WITHOUT_ON)
        return slot if twice else f"{_article(low) if number else before} {slot}"

    return _BEFORE.sub(fitted, form).format_map(fields)


def _article(noun: str) -> str:
    return "an" if re.match(r"(?!uni|use|eu|one)[aeiou]|hour|honest", noun.lower()) else "a"


def _many(first: str, rest: list[str]) -> bool:
    """Whether no "a" stands before such a value: "two lamps", "flowers"."""
    last = rest[-1] if rest else first
    return (
        first.lower() in _NUMBERS
        or first[:1].isdigit()
        or (last.endswith("s") and last[-2:] != "ss" and last.islower())
    )


_NUMBERS = frozenset("one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty half several many both no".split())  # fmt: skip
MATTERS = Pool({split: [case for case in CASES.values() if case.tellable(split)] for split in SPLITS}, value, said)
