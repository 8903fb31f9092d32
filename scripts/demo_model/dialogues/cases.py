"""What people tell and ask of everyday life: blocks of texts/matters_*.txt, remarks.txt and near.txt.

A case is a block:
    @ name | subjects | slots                x:who, somebody; x=…, things by a list; me=…, the user: words that name the matter
    @ name | subjects | g=… | slots          {g} is one of a list of things of the same kind, none of which is another one
    > statements; …                          each with the slots that it tells, in braces
    slot? questions; …
    slot~ noun phrases; …                    for what the slot holds
    slot! changes; …                         {o} is the value before
    slot= statements; … ? question           {z} or {x2} has the same value as {x}; the question asks with whom
    - questions; …                           that no statement of the case answers
    = kind | value; …                        a kind of values, of which most are as listed
{x} is the subject, {xs} its possessive, {xp}, {xo} and {xr} its pronouns (he, him, his).
"""

import re
from dataclasses import dataclass, field, replace
from functools import cache

from . import names, values
from .splits import SPLITS, Forms, divide, pick, share
from .texts import LISTS, blocks, listed

_SLOT = re.compile(r"\{(\w)\}")
# Slots that the same vague question word could ask for.
_WHENS = frozenset(LISTS["when_kinds"])
_WHERES = frozenset(LISTS["where_kinds"])
_WHEN, _WHERE = re.compile(r"^(when|until when|by when|from when)\b"), re.compile(r"^where\b")
AREAS = ("home", "work", "leisure", "people", "more", "mine")
_MORE = "old new big small plain cheap odd spare second other local fancy dusty green blue broken heavy light long short special extra quiet bright simple late early".split()
QUALIFIERS = (*_MORE, *"red yellow white black grey brown purple pink left right front back upper lower upstairs downstairs first third next last main wooden metal round square winter summer morning evening work home guest".split())  # fmt: skip
_DETERMINERS = frozenset(LISTS["determiners"])
_PLACES = frozenset(LISTS["place_words"])
_WITHOUT_ON = frozenset(LISTS["without_on"])
_BEFORE = re.compile(r"\b([\w']+) \{(\w)\}")  # a value and the word before it
_COUNTS = frozenset(LISTS["counts"])


@dataclass
class Slot:
    """One value that a case can tell. nouns: of all splits; same: statements that two have the same, by split."""

    kind: str
    asks: tuple[str, ...] = ()
    asks_of: Forms = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    nouns: tuple[str, ...] = ()
    changes: Forms = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    same: Forms = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    same_ask: str = ""


@dataclass(eq=False)
class Case:
    """subjects: "who", "me", or a list. keys: of a case about the user, the words that name it. area: its file."""

    name: str
    area: str
    subjects: tuple[str, ...]
    keys: tuple[str, ...]
    genus: tuple[str, ...]
    slots: dict[str, Slot]
    statements: Forms
    untold: tuple[str, ...]

    @property
    def mine(self) -> bool:
        return bool(self.keys)

    @property
    def somebody(self) -> bool:
        return self.subjects == ("who",)

    def told_by(self, statement: str) -> list[str]:
        return [slot for slot in _slots(statement) if slot in self.slots]

    def asked(self, statement: str, split: str) -> list[str]:
        """The slots that a statement tells and that the split has questions for; the others are told with them."""
        return [slot for slot in self.told_by(statement) if self.slots[slot].asks_of[split]]

    def tellable(self, split: str) -> list[str]:
        return _single(self, split, None)[1]

    def single(self, split: str, slot: str | None = None) -> list[str]:
        """Statements that tell one slot, or this one, and nothing else."""
        return _single(self, split, slot)[0]

    def unclear(self, ask: str, slot: str, told) -> bool:
        """Whether another slot that was told could be meant by the question's first word."""
        for pattern, kinds in ((_WHEN, _WHENS), (_WHERE, _WHERES)):
            if pattern.match(ask) and any(s != slot and self.slots[s].kind in kinds for s in told):
                return True
        return False


@cache
def _slots(statement: str) -> list[str]:
    return _SLOT.findall(statement)


@cache
def _single(case: Case, split: str, slot: str | None) -> tuple[list[str], list[str]]:
    """Statements that tell one slot only, and all that tell any."""
    every = [statement for statement in case.statements[split] if case.asked(statement, split)]
    return [s for s in every if case.told_by(s) == [slot or case.told_by(s)[0]]], every


def _words(text: str, mark: str) -> tuple[str, ...]:
    return listed(text.removeprefix(mark), ",") if text.startswith(mark) else ()


def _parse(lines: list[str], area: str) -> Case:
    name, subjects, *rest = (part.strip() for part in lines[0].removeprefix("@ ").split("|"))
    keys = _words(subjects, "me=")
    who = ("me",) if keys else ("who",) if subjects == "x:who" else _words(subjects, "x=")
    genus = _words(rest.pop(0), "g=") if rest[0].startswith("g=") else ()
    slots = {slot: Slot(kind) for slot, kind in re.findall(r"(\w):(.+?)(?= \w:|$)", " ".join(rest))}
    statements: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    for line in lines[1:]:
        mark, text = line.split(" ", 1)
        forms, where = listed(text), f"remark {name} {mark}"
        if mark == ">":
            statements += forms
        elif mark == "-":
            untold += forms
        elif mark[1] == "?":
            slots[mark[0]].asks, slots[mark[0]].asks_of = forms, share(forms, where)
        elif mark[1] == "~":
            slots[mark[0]].nouns = forms
        elif mark[1] == "!":
            slots[mark[0]].changes = divide(forms, where)
        else:
            told, slots[mark[0]].same_ask = (part.strip() for part in text.split("?"))
            slots[mark[0]].same = divide(listed(told), where)
    return Case(name, area, who, keys, genus, slots, divide(statements, f"remark {name}"), untold)


KINDS: dict[str, tuple[str, ...]] = {}  # of values that the texts list


def _read(area: str) -> list[Case]:
    found = []
    for lines in blocks(area):
        for line in (line for line in lines if line.startswith("= ")):
            name, rest = line[2:].split(" | ")
            KINDS[name.strip()] = listed(rest)
        if rest_ := [line for line in lines if line.strip() and not line.startswith("= ")]:
            found.append(_parse(rest_, area))
    return found


MATTERS = [case for area in (*(f"matters_{area}" for area in AREAS), "remarks") for case in _read(area)]
NEAR = _read("near")


def by_split(cases: list[Case]) -> dict[str, list[Case]]:
    return {split: [case for case in cases if case.tellable(split)] for split in SPLITS}


# Values


def _varied(rng, split: str, text: str) -> str:
    """A listed value with another word in it, so that any value must be copied."""
    first, *rest = text.split()
    more = pick(rng, _MORE) if rng.random() < 0.4 else values.word(rng, split)
    if more in text.split() or re.search(r"(ing|ed|ly)$", first):  # "washed by hand"
        return text
    if re.search(r"\d", text):
        return re.sub(r"\d+", lambda match: str(int((1 + 9 * rng.random()) * 10 ** (len(match[0]) - 1))), text)
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
        return " ".join([names.word(rng, split), *rest]) if rest else names.word(rng, split)
    return f"{more} {text}"


def value(rng, split: str, kind: str) -> str:
    """A value of a kind that the texts list, or of `values.value`."""
    if kind not in KINDS:
        return values.value(rng, split, kind)
    text = pick(rng, KINDS[kind])
    return _varied(rng, split, text) if rng.random() < 0.34 else text


def _article(noun: str) -> str:
    return "an" if re.match(r"(?!uni|use|eu|one)[aeiou]|hour|honest", noun.lower()) else "a"


def _many(first: str, rest: list[str]) -> bool:
    """Whether no "a" stands before such a value: "two lamps", "flowers"."""
    last = rest[-1] if rest else first
    plural = last.endswith("s") and last[-2:] != "ss" and last.islower()
    return first.lower() in _COUNTS or first[:1].isdigit() or plural


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


_PREPOSITIONS = frozenset(LISTS["prepositions"])
# Verbs that a second clause can leave out.
_SHARED = frozenset(LISTS["shared_verbs"])


def without_verb(form: str, key: str, found: str) -> str | None:
    """A clause whose verb the clause before has: "{x} sits {y}" as "{x} {y}"; None if it cannot be left out. key, found: its slots."""
    match = re.match(rf"^\{{{key}\}} ([^{{}}]+?) ?\{{{found}\}}$", form)
    if match is None:
        return None
    words = match[1].split()
    kept = f"{words[-1]} " if words[-1] in _PREPOSITIONS else ""
    return f"{{{key}}} {kept}{{{found}}}" if len(words) <= 3 and words[0] in _SHARED else None


# Subjects

_RELATIVES = (
    ("she", "sister mother mum aunt wife daughter niece grandma landlady girlfriend stepmother godmother".split()),
    ("he", "brother father dad uncle husband son nephew grandpa landlord boyfriend stepfather godfather".split()),
    ("", "cousin neighbour neighbor boss flatmate roommate colleague coach teacher friend boss accountant lawyer plumber mentor babysitter tutor".split()),
)  # fmt: skip
_THEY = dict.fromkeys(("Ms", "Mrs", "Sister", "Aunt"), "she") | dict.fromkeys(("Mr", "Father", "Uncle", "Sir"), "he")


@dataclass(frozen=True)
class Subject:
    """Whom or what a case is about. they, them, their: its pronouns."""

    text: str
    they: str
    key: str
    own: str = "'s"  # the end of its possessive; hasty people leave out the apostrophe
    base: str = ""  # of one with a qualifier: the same without it

    @property
    def fields(self) -> dict[str, str]:
        them, their = {"she": ("her", "her"), "he": ("him", "his")}.get(self.they, ("it", "its"))
        return {"x": self.text, "xs": self.text + self.own, "xp": self.they, "xo": them, "xr": their}

    def other(self, rng, split: str) -> "Subject":
        """The same with another qualifier: "the green bike" for "the red bike"."""
        return _qualified(rng, split, self.base)


def key_of(text: str) -> str:
    """What identifies a noun phrase: "my car" and "the car" have one key."""
    return re.sub(r"^(the|my|our|a|an) ", "", text.lower())


def subject(text: str, they: str = "it") -> Subject:
    return Subject(text, they, key_of(text))


def named(text: str, they: str) -> Subject:
    """Somebody with a name, who is he or she by a title, or else as given."""
    return subject(text, _THEY.get(text.split()[0].rstrip("."), they))


def somebody(rng, split: str) -> Subject:
    """A relative, a friend, or a name."""
    style = rng.random()
    if style < 0.32:
        they, relatives = pick(rng, _RELATIVES)
        text = f"{pick(rng, ['my', 'my', 'my', 'our'])} {pick(rng, relatives)}"
        return subject(text + (" " + names.given(rng, split) if rng.random() < 0.2 else ""), they or pick(rng, ["she", "he"]))  # fmt: skip
    name = names.given(rng, split)
    they = "he" if name in LISTS["he"] else "she" if name in LISTS["she"] else pick(rng, ["she", "he"])
    if style < 0.88:
        text = name if style < 0.72 else f"{name} {names.surname(rng, split)}"
        return subject(names.accented(rng, text) if rng.random() < 0.1 else text, they)
    return named(values.value(rng, split, "titled"), they)


def _qualified(rng, split: str, text: str) -> Subject:
    first, *rest = text.split()
    style = rng.random()
    more = names.word(rng, split) if style < 0.2 else pick(rng, LISTS["english"] if style < 0.35 else QUALIFIERS)
    return replace(subject(" ".join([first, more, *rest])), base=text)


def draw(rng, split: str, case: Case) -> Subject:
    """A subject of the case; things are now and then described further, or new ones."""
    if case.mine:
        return Subject("me", "I", case.name)
    if case.somebody:
        return somebody(rng, split)
    text, style = pick(rng, case.subjects), rng.random()
    if text.split()[0] in ("the", "my", "our") and style < (0.6 if case.area == "near" else 0.35):
        return _qualified(rng, split, text)
    if style > 0.94 and case.name in ("where", "bought", "thingof"):
        text = f"the {pick(rng, LISTS['objects'] if style < 0.97 else LISTS['english'])}"
    return subject(text)
