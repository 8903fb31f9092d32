"""Everyday subjects, what is told of them, and how it changes: texts/topics.txt.

A topic is a block:
    @ name | pronoun: subject; subject … | pronoun: …   whom or what it is about; none for the user
    > statements; …                                      each with the attributes that it tells, in braces
    attribute: kind of value | questions; … | noun phrases; … | changes; …
{e} is the subject, {es} its possessive, {n} the same without its article; {they}, {them}, {their}, {theyre} its pronouns; verbs
in braces agree with it ({goes}, {has}); {v} is a value and {o} the one before it. A change names nothing but the value: it stands
right behind what it changes, or after the subject ("about the car: …").
"""

import re
from dataclasses import dataclass, field
from zlib import crc32

from .. import names, texts, values
from ..lexicon import ADJECTIVES, COLOURS, OBJECTS
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of

PRONOUNS = {
    "it": ("it", "it", "its", "it's"), "she": ("she", "her", "her", "she's"), "he": ("he", "him", "his", "he's"),
    "they": ("they", "them", "their", "they're"),
}  # fmt: skip
_PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go"}
_SLOT = re.compile(r"\{(\w+)\}")
_OWN = frozenset("e es n they them their theyre v o".split())
_NOUN = re.compile(r"^(?:the (?P<of>[\w ']+?) (?:of|for) \{e\}|\{es\} (?P<own>[\w ']+)|my (?P<my>[\w ']+))$")
SHE = "Anna Mia Lena Sara Nora Clara Emma Olivia Ida Eva".split()
HE = "Tom Peter Paul Ben Max Leo Felix Noah Jonas Liam".split()
# Kinds of values that could be taken for each other where only the value is named.
_ALIKE = (
    "time slot", "day dayish date ordinalday month weekdays", "count number age ordinal port few", "code password phone ip version flight",
    "firstname person landlord animalname name company team", "town org street address place spot", "price length distance duration cooking weight temperature",
)  # fmt: skip
_GROUP = {kind: group for group in _ALIKE for kind in group.split()}


def alike(one: str, other: str) -> bool:
    """Whether values of the two kinds look the same."""
    return _GROUP.get(one, one) == _GROUP.get(other, other)


@dataclass(frozen=True)
class Attribute:
    name: str
    kind: str
    asks: tuple[str, ...]
    nouns: tuple[str, ...]
    changes: dict[str, tuple[str, ...]]
    asks_of: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Subject:
    """Whom or what a story is about. pronoun: it, she, he, they, or me."""

    text: str
    pronoun: str

    @property
    def key(self) -> str:
        return Phrase.of(self.text, "").key


ME = Subject("me", "me")


@dataclass
class Topic:
    name: str
    subjects: list[Subject]
    statements: dict[str, list[str]] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def told_by(self, statement: str) -> list[str]:
        """The attributes that a statement tells."""
        return [slot for slot in _SLOT.findall(statement) if slot in self.attributes]


class _Fields(dict):
    """What the braces of a form stand for; verbs in the third person agree with the subject."""

    def __missing__(self, verb: str) -> str:
        if self["they"] not in ("they", "I"):
            return verb
        return _PLURAL.get(verb, verb[:-1])


def fields(subject: Subject, **others: str) -> dict[str, str]:
    they, them, their, theyre = PRONOUNS.get(subject.pronoun, ("I", "me", "my", "I'm"))
    own = subject.text + ("'" if subject.text.endswith("s") and subject.pronoun == "they" else "'s")
    bare = re.sub(r"^(the|my|our) ", "", subject.text)
    return _Fields(e=subject.text, es=own, n=bare, they=they, them=them, their=their, theyre=theyre, **others)


def _divide(forms: tuple[str, ...], where: str) -> dict[str, tuple[str, ...]]:
    return {split: tuple(form for form in forms if split_of(f"{where} {form}") == split) for split in SPLITS}


def _share(asks: tuple[str, ...], where: str) -> dict[str, tuple[str, ...]]:
    """As `_divide`, but of four questions or more one is of the test split and one of the validation split."""
    ranked = sorted(asks, key=lambda ask: crc32(f"{where} {ask}".encode()))
    if len(ranked) < 4:
        return {"train": asks, "validation": (), "test": ()}
    return {
        "test": (ranked[0],),
        "validation": (ranked[1],),
        "train": tuple(ask for ask in asks if ask not in ranked[:2]),
    }


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _parse(block: str) -> Topic:
    head, *lines = block.strip().splitlines()
    name, *groups = (part.strip() for part in head.removeprefix("@ ").split("|"))
    subjects = [Subject(text, pronoun) for group in groups if group for pronoun, text in _subjects(group)]
    topic = Topic(name, subjects or [ME])
    statements: list[str] = []
    for line in lines:
        if line.startswith("> "):
            statements += _list(line[2:])
            continue
        attribute, rest = line.split(": ", 1)
        kind, asks, nouns, changes = (part.strip() for part in rest.split("|"))
        where = f"{name} {attribute}"
        topic.attributes[attribute] = Attribute(
            attribute, kind, _list(asks), _list(nouns), _divide(_list(changes), where), _share(_list(asks), where)
        )
    divided = _divide(tuple(statements), name)
    topic.statements = {
        split: [s for s in forms if any(topic.attributes[a].asks_of[split] for a in topic.told_by(s))]
        for split, forms in divided.items()
    }
    return topic


def _subjects(group: str) -> list[tuple[str, str]]:
    pronoun, texts_ = group.split(": ", 1)
    return [(pronoun, text) for text in _list(texts_)]


TOPICS = {topic.name: topic for topic in map(_parse, texts.read("topics").strip().split("\n\n"))}
BY_SPLIT = {split: [t for t in TOPICS.values() if t.statements[split]] for split in SPLITS}


def subject(rng, split: str, topic: Topic) -> Subject:
    """Somebody or something of the topic; now and then described further, or with a name."""
    chosen, style = pick(rng, topic.subjects), rng.random()
    if chosen is ME:
        return ME
    words = chosen.text.split()
    if chosen.pronoun in ("she", "he") and topic.name == "person" and style < 0.25:
        name = pick(rng, SHE if chosen.pronoun == "she" else HE)
        return Subject(name if style < 0.12 else f"{name} {names.surname(rng, split)}", chosen.pronoun)
    if topic.name == "thing" and chosen.pronoun == "it" and style < 0.35:
        noun = pick(rng, OBJECTS)
        if not noun.endswith("s"):
            return Subject(f"{pick(rng, ['the', 'my', 'our'])} {noun}", "it")
    if words[0] in ("the", "my", "our") and chosen.pronoun in ("it", "they") and len(words) == 2 and style < 0.3:
        more = (
            pick(rng, COLOURS)
            if topic.name in ("car", "thing")
            else pick(rng, [*ADJECTIVES[:2], "new", "second", "other", "big", "next"])
        )
        return Subject(f"{words[0]} {more} {words[1]}", chosen.pronoun)
    if words[0] == "the" and topic.name in ("server", "project", "code") and style < 0.45:
        return Subject(f"the {names.word(rng, split)} {words[-1]}", chosen.pronoun)
    return chosen


_OWN_KINDS = ("slot", "file", "few", "cooking", "distance")  # `values` does not have them


def value(rng, split: str, kind: str) -> str:
    if kind == "slot":
        hour = 7 + int(rng.random() * 12)
        return f"{hour} and {hour + 1 + int(rng.random() * 3)}"
    if kind == "file":
        stem = pick(rng, OBJECTS).replace(" ", "_") if rng.random() < 0.5 else names.word(rng, split).lower()
        return f"{stem}{pick(rng, ['', '_v2', '-final', '_new'])}.{pick(rng, ['txt', 'pdf', 'docx', 'xlsx', 'md', 'odt', 'csv'])}"
    if kind == "few":
        return str(1 + int(rng.random() * 9))
    if kind == "cooking":
        return (
            f"{5 * (1 + int(rng.random() * 24))} minutes"
            if rng.random() < 0.8
            else f"{2 + int(rng.random() * 8)} hours"
        )
    if kind == "distance":
        return f"{1 + int(rng.random() * 30)} {pick(rng, ['km', 'km', 'miles', 'kilometres'])}"
    return values.value(rng, split, kind)


def tell(rng, split: str, wording: str, topic: Topic, about: Subject, statement: str, told: dict[str, str]) -> Fact:
    """The statement with new values, which are added to `told`, and the questions for those of its attributes that can be asked."""
    for name in topic.told_by(statement):
        kind = topic.attributes[name].kind
        told[name] = value(rng, split, kind)
        while any(told[name].lower() == other.lower() for key, other in told.items() if key != name):
            told[name] = value(rng, split, kind)
    sentence = capital(statement.format_map(fields(about, **told)))
    questions = [question(topic, about, name, wording, told) for name in topic.told_by(statement)]
    phrase = Phrase(about.text, about.key, "story", 1 if about is ME else 3, about.pronoun == "they")
    return Fact(sentence, [q for q in questions if q.direct], phrase, None, [], "", f"topic {topic.name}")


def question(topic: Topic, about: Subject, name: str, wording: str, told: dict[str, str]) -> Question:
    """What asks for an attribute. Without a value in `told`: a question that has no answer."""
    attribute = topic.attributes[name]
    known = fields(about, **told)
    asks = [ask.format_map(known) for ask in attribute.asks_of[wording] if _told(ask, known)]
    if "time" in told and name == "day":  # "when" would ask for both
        asks = [ask for ask in asks if not ask.startswith("when")]
    nouns = [noun.format_map(known) for noun in attribute.nouns]
    every = [ask.format_map(known) for ask in attribute.asks if _told(ask, known)]
    aliases = {re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in every}
    aliases |= {f"{ask.split(' ', 1)[0]}|{about.key}" for ask in every if ask.startswith(("where is", "when is"))}
    for noun in attribute.nouns:
        if match := _NOUN.match(noun):
            aliases.add(f"{match['of'] or match['own'] or match['my']}|{about.key}")
    if attribute.kind == "spot":
        aliases.add(f"location|{about.key}")
    topics = [
        noun for noun in nouns if not noun.endswith((" pw", " ip", " bday")) and " " in noun and noun != about.text
    ]
    return Question(
        f"topic {topic.name} {name}|{about.key}", told.get(name, ""), asks, [f"what {noun} is" for noun in nouns if noun.startswith(("the ", "my "))],
        nouns, [], tuple(sorted(aliases)), attribute.kind if attribute.kind not in _OWN_KINDS else "", [], topics,
    )  # fmt: skip


def _told(form: str, known: dict[str, str]) -> bool:
    """Whether everything that a form names has been told."""
    return all(slot in known or slot in _OWN or slot[-1:] == "s" for slot in _SLOT.findall(form))


def changes(topic: Topic, about: Subject, name: str, wording: str, told: dict[str, str], new: str) -> list[str]:
    """Statements that name nothing but the new value, by pronouns at most."""
    forms = topic.attributes[name].changes[wording]
    known = fields(about, **{**told, "v": new, "o": told[name]})
    return [form.format_map(known) for form in forms if _told(form, known)]
