"""What remarks tell and ask: texts/remarks.txt.

A case is a block:
    @ name | subjects | slots                x:who, somebody; x=…, things by a list; me=…, the user: words that name the matter
    > statements; …                          each with the slots that it tells, in braces
    slot? questions; …
    slot~ noun phrases; …                    for what the slot holds
    slot! changes; …                         {o} is the value before
    slot= statements; … ? question           {z} or {x2} has the same value as {x}; the question asks with whom
    - questions; …                           that no statement of the case answers
{x} is the subject, {xs} its possessive, {xp}, {xo} and {xr} its pronouns (he, him, his).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import names, texts
from ..lexicon import OBJECTS
from ..phrases import Phrase
from ..splits import SPLITS, pick
from . import topics
from .remark_values import WORDS, titled, value
from .sketch_blocks import article

_SLOT = re.compile(r"\{(\w)\}")
# Slots that the same vague question word could ask for.
_WHENS = frozenset("when clock date day dayish weekdays time".split())
_WHERES = frozenset("room place eatery street town spot floor gate org spotcode address country school".split())
_WHEN, _WHERE = re.compile(r"^(when|until when|by when|from when)\b"), re.compile(r"^where\b")


@dataclass
class Slot:
    """One value that a case can tell. nouns: of all splits; same: (statement, question) by split."""

    kind: str
    asks: tuple[str, ...] = ()
    asks_of: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    nouns: tuple[str, ...] = ()
    changes: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    same: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(SPLITS, ()))
    same_ask: str = ""


@dataclass(eq=False)
class Case:
    """subjects: "who", "me", or a list. keys: of a case about the user, the words that name it. area: of `matter_cases`, its file."""

    name: str
    subjects: tuple[str, ...]
    keys: tuple[str, ...]
    slots: dict[str, Slot]
    statements: dict[str, tuple[str, ...]]
    untold: tuple[str, ...]
    area: str = ""

    @property
    def mine(self) -> bool:
        return bool(self.keys)

    @property
    def somebody(self) -> bool:
        return self.subjects == ("who",)

    def told_by(self, statement: str) -> list[str]:
        return [slot for slot in _SLOT.findall(statement) if slot in self.slots]

    def asked(self, statement: str, split: str) -> list[str]:
        """The slots that a statement tells and that the split has questions for; the others are told beside."""
        return [slot for slot in self.told_by(statement) if self.slots[slot].asks_of[split]]

    def tellable(self, split: str) -> list[str]:
        return [statement for statement in self.statements[split] if self.asked(statement, split)]

    def unclear(self, ask: str, slot: str, told) -> bool:
        """Whether another slot that was told could be meant by the question's first word."""
        for pattern, kinds in ((_WHEN, _WHENS), (_WHERE, _WHERES)):
            if pattern.match(ask) and any(s != slot and self.slots[s].kind in kinds for s in told):
                return True
        return False


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def parse(block: str, area: str = "", share=topics._share) -> Case:
    """share: divides the questions of a slot among the splits."""
    head, *lines = block.strip().splitlines()
    name, subjects, *given = (part.strip() for part in head.removeprefix("@ ").split("|"))
    keys = _words(subjects, "me=")
    who = ("me",) if keys else ("who",) if subjects == "x:who" else _words(subjects, "x=")
    slots = {slot: Slot(kind) for slot, kind in (part.split(":") for part in " ".join(given).split())}
    statements: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    for line in lines:
        mark, rest = line.split(" ", 1)
        where = f"remark {name} {mark}"
        if mark in ">-":
            statements, untold = (
                (statements + _list(rest), untold) if mark == ">" else (statements, untold + _list(rest))
            )
            continue
        slot = slots[mark[0]]
        if mark[1] == "?":
            slot.asks, slot.asks_of = _list(rest), share(_list(rest), where)
        elif mark[1] == "~":
            slot.nouns = _list(rest)
        elif mark[1] == "!":
            slot.changes = topics._divide(_list(rest), where)
        else:
            told, slot.same_ask = (part.strip() for part in rest.split("?"))
            slot.same = topics._divide(_list(told), where)
    return Case(name, who, keys, slots, topics._divide(statements, f"remark {name}"), untold, area)


def _words(text: str, mark: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.removeprefix(mark).split(",")) if text.startswith(mark) else ()


CASES = {case.name: case for case in map(parse, texts.read("remarks").strip().split("\n\n"))}
BY_SPLIT = {split: [case for case in CASES.values() if case.tellable(split)] for split in SPLITS}


@dataclass(frozen=True)
class Pool:
    """Cases that are told together: by split; value(rng, split, kind) makes their values, said(form, fields) writes a form."""

    cases: dict[str, list[Case]]
    value: Callable[..., str]
    said: Callable[[str, dict[str, str]], str]


REMARKS = Pool(BY_SPLIT, value, lambda form, fields: article(form.format_map(fields)))
# Cases of which one could answer a question of the other.
_APART = (
    "likes drinkof brings gift lent debt order allergy", "hometown trip pickup person2 speaks", "plays league hobby", "studies child", "employer livelihood shift",
    "pill doctorof", "age birthday birth", "tall size", "myhealth mymeds mybody", "myroutine mytastes", "mytrip myflight myhome", "mywork myroutine", "mycar myparking",
    "myphone mynames", "myshopping myorder mymoney", "mykids", "myhome mywork", "mycodes mywifi", "mydentist myhealth", "mydiary mygym myroutine", "mylearning mywork mykids", "mysubs myphone mymeds mymoney", "health2 pill allergy doctorof pickup desk", "said gift brings lent likes drinkof debt", "points studies", "mylost myhome mycar", "mywedding myfamily mynames",
)  # fmt: skip
_OTHERS = {name: {n for line in _APART if name in line.split() for n in line.split()} | {name} for name in CASES}


def beside(case: Case) -> list[Case]:
    """Cases of the same subjects that answer no question of this one."""
    return [
        c
        for c in CASES.values()
        if c.subjects == case.subjects == ("who",) or (c.mine and case.mine)
        if c.name not in _OTHERS[case.name]
    ]


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

    @property
    def fields(self) -> dict[str, str]:
        them, their = {"she": ("her", "her"), "he": ("him", "his")}.get(self.they, ("it", "its"))
        own = self.text + "'s"
        return {"x": self.text, "xs": own, "xp": self.they, "xo": them, "xr": their}

    def lower(self) -> "Subject":
        return Subject(self.text.lower(), self.they, self.key)


def subject(text: str, they: str) -> Subject:
    return Subject(text, they, Phrase.of(text, "").key)


def named(text: str, they: str) -> Subject:
    """Somebody with a name, who is he or she by a title, or else as given."""
    return subject(text, _THEY.get(text.split()[0].rstrip("."), they))


def somebody(rng, split: str) -> Subject:
    """A relative, a friend, or a name."""
    style = rng.random()
    if style < 0.32:
        they, relatives = pick(rng, _RELATIVES)
        they = they or pick(rng, ["she", "he"])
        text = f"{pick(rng, ['my', 'my', 'my', 'our'])} {pick(rng, relatives)}"
        if rng.random() < 0.2:
            text += " " + names.given(rng, split)
        return subject(text, they)
    name = names.given(rng, split)
    they = "he" if name in topics.HE else "she" if name in topics.SHE else pick(rng, ["she", "he"])
    if style < 0.72:
        return subject(name, they)
    if style < 0.88:
        return subject(f"{name} {names.surname(rng, split)}", they)
    return named(titled(rng, split), they)


def draw(rng, split: str, case: Case) -> Subject:
    """A subject of the case; things are now and then described further, or new ones."""
    if case.mine:
        return Subject("me", "I", case.name)
    if case.somebody:
        return somebody(rng, split)
    text, style = pick(rng, case.subjects), rng.random()
    first, *rest = text.split()
    if first in ("the", "my", "our") and rest and style < 0.35:
        more = names.word(rng, split) if style < 0.08 else pick(rng, WORDS) if style < 0.2 else pick(rng, ["old", "new", "big", "small", "other", "second", "first", "next", "last", "spare", "main", "good"])  # fmt: skip
        text = " ".join([first, more, *rest])
    elif style > 0.94 and case.name in ("where", "bought", "thingof"):
        text = f"the {pick(rng, OBJECTS) if style < 0.97 else pick(rng, WORDS)}"
    return subject(text, "it")
