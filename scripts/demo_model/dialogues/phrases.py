"""Noun phrases, facts and questions, and the inflection of English verbs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .predicates import Predicate


@dataclass(frozen=True)
class Phrase:
    """A noun phrase. key: what identifies it; kind: person, thing, event, org, bare or animal; person: 1, 2 or 3."""

    text: str
    key: str
    kind: str
    person: int = 3
    plural: bool = False

    @staticmethod
    def of(text: str, kind: str, plural: bool = False) -> "Phrase":
        """In the third person. "my car" and "the car" have one key."""
        return Phrase(text, _DETERMINER.sub("", text.lower()), kind, plural=plural)

    @property
    def possessive(self) -> str:
        if self.person == 1:
            return "our" if self.plural else "my"
        return self.text + ("'" if self.text.endswith("s") and self.plural else "'s")


@dataclass
class Question:
    """One thing that can be asked. direct: "where does Anna live"; indirect: "where Anna lives"; short: "Anna's town"."""

    signature: str
    value: str
    direct: list[str]
    indirect: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    # Noun phrases for the value: "the town Anna lives in". A question of two steps uses them in place of the value.
    described: list[str] = field(default_factory=list)
    # Further signatures: other questions that this value would answer as well.
    aliases: tuple[str, ...] = ()
    # How the value may change: its kind, statements with {new} and perhaps {old}, and noun phrases for it.
    kind: str = ""
    changes: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)


@dataclass
class Fact:
    """One statement. sentence: without a full stop. remake: the same statement with another value of its main part."""

    sentence: str
    questions: list[Question]
    subject: Phrase
    remake: Callable[[object, str], "Fact"] | None = None
    # Names of what changes, for "{topic} changed from {old} to {new}": the first question's value.
    topics: list[str] = field(default_factory=list)
    # For "Anna lives in Oslo and Tom in Bergen": what is left when the verb is dropped; and the verb's identity.
    gapped: str = ""
    frame: str = ""


_DETERMINER = re.compile(r"^(the|my|our|a|an) ")
ME = Phrase("I", "me", "person", 1)
WE = Phrase("we", "us", "person", 1, True)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def third_person(verb: str) -> str:
    head, _, rest = verb.partition(" ")
    if head == "have":
        head = "has"
    elif head == "be":
        head = "is"
    elif head.endswith(("s", "sh", "ch", "x", "o", "z")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return f"{head} {rest}".strip()


def agreed(verb: str, subject: Phrase) -> str:
    """The verb in the present tense, in the person of its subject."""
    if verb == "be":
        return be(subject, "present")
    if verb == "was":
        return "were" if subject.plural else "was"
    return verb if subject.person == 1 or subject.plural else third_person(verb)


def owned(noun: str, owner: Phrase | None) -> list[str]:
    if owner is None:
        return [f"the {noun}"]
    if owner.person == 1:
        return [f"{owner.possessive} {noun}"]
    if owner.kind in ("thing", "event", "org", "bare"):
        return [f"the {noun} of {owner.text}", f"the {noun} for {owner.text}", f"{owner.possessive} {noun}"]
    return [f"{owner.possessive} {noun}", f"{owner.possessive} {noun}", f"the {noun} of {owner.text}"]


def be(subject: Phrase, tense: str) -> str:
    if tense == "past":
        return "were" if subject.plural else "was"
    if tense == "future":
        return "will be"
    if subject.person == 1:
        return "are" if subject.plural else "am"
    return "are" if subject.plural else "is"


def ask_be(wh: str, subject: Phrase, tense: str) -> str:
    if tense == "future":
        return f"{wh} will {subject.text} be"
    return f"{wh} {be(subject, tense)} {subject.text}"


def do(subject: Phrase, tense: str) -> str:
    if tense == "past":
        return "did"
    if tense == "future":
        return "will"
    return "do" if subject.person == 1 or subject.plural else "does"


def conjugate(predicate: Predicate, subject: Phrase, tense: str) -> str:
    verb = predicate.verb
    head, _, rest = verb.partition(" ")
    if head == "be":
        return f"{be(subject, tense)} {rest}".strip()
    if tense == "future":
        return f"will {verb}"
    if tense == "past":
        return f"had {rest}".strip() if head == "have" else predicate.past
    return verb if subject.person == 1 or subject.plural else third_person(verb)
