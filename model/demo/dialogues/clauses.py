"""Facts as sentences, and the questions that ask for each of their parts.

A `Fact` is composed by grammar: a subject, a verb or an attribute, a value, perhaps adjuncts. For every part that can be asked
for it knows a *signature*: the question without its wording. Two facts whose questions could be confused share a signature, so
that a conversation never asks a question that has two answers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ..conversations.splits import pick
from . import names, values
from .lexicon import (  # fmt: skip
    ADJECTIVES,
    ATTRIBUTES,
    BARE_EVENTS,
    DAYS,
    EVENTS,
    FOODS,
    JOBS,
    MEETINGS,
    OBJECTS,
    RELATIONS,
    SYNONYMS,
    TRANSITIVES,
)
from .predicates import Predicate
from .wording import Wording


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


class Grammar:
    """Draws facts. rng decides; split: of invented names; wording: the frames and question forms that may be used."""

    def __init__(self, rng, split: str, wording: Wording):
        self.rng, self.split, self.wording = rng, split, wording

    def value(self, kind: str) -> str:
        return values.value(self.rng, self.split, kind)

    # Noun phrases ----------------------------------------------------------------------------------------------------

    def person(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        if style < 0.42:
            name = names.given(rng, self.split)
        elif style < 0.55:
            name = f"{names.given(rng, self.split)} {names.surname(rng, self.split)}"
        elif style < 0.74:
            name = f"{pick(rng, ['my', 'my', 'our'])} {pick(rng, RELATIONS)}"
        elif style < 0.82:
            name = f"{names.given(rng, self.split)}'s {pick(rng, RELATIONS)}"
        elif style < 0.87:
            name = f"my {pick(rng, RELATIONS)} {names.given(rng, self.split)}"
        elif style < 0.92:
            name = f"{pick(rng, ['Dr', 'Dr.', 'Mr', 'Mrs', 'Ms', 'Professor', 'Captain', 'Uncle', 'Aunt'])} {names.surname(rng, self.split)}"
        else:
            name = f"the {pick(rng, ['', 'new ', 'old ', 'head '])}{pick(rng, JOBS)}"
        return Phrase.of(name, "person")

    def animal(self) -> Phrase:
        rng = self.rng
        name = pick(
            rng,
            [
                f"my {pick(rng, ['dog', 'cat', 'horse', 'rabbit', 'parrot', 'hamster'])}",
                names.animal_name(rng, self.split),
                names.word(rng, self.split),
            ],
        )
        return Phrase.of(name, "animal")

    def thing(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        noun = pick(rng, OBJECTS)
        if rng.random() < 0.12:
            noun = f"{pick(rng, OBJECTS).split()[-1]} {noun}"
        if style < 0.28:
            text = f"the {noun}"
        elif style < 0.45:
            text = f"my {noun}"
        elif style < 0.68:
            text = f"{pick(rng, ['the', 'the', 'my', 'our'])} {pick(rng, ADJECTIVES)} {noun}"
        elif style < 0.8:
            text = f"{names.given(rng, self.split)}'s {noun}"
        elif style < 0.86:
            text = f"{pick(rng, ['my', 'our'])} {pick(rng, RELATIONS)}'s {noun}"
        elif style < 0.93:
            text = names.product(rng, self.split)
        else:
            text = f"the {names.word(rng, self.split).lower()}"
        plural = noun.endswith("s") and noun not in ("glass", "compass") and not noun.endswith("ss")
        return Phrase.of(text, "thing", plural)

    def event(self) -> Phrase:
        rng, style = self.rng, self.rng.random()
        noun = pick(rng, EVENTS)
        if style < 0.4:
            text = f"the {noun}"
        elif style < 0.55:
            text = f"{pick(rng, ['my', 'our'])} {noun}"
        elif style < 0.7:
            text = f"{names.given(rng, self.split)}'s {noun}"
        elif style < 0.85:
            text = f"the {names.word(rng, self.split)} {noun}"
        else:
            text = f"{pick(rng, ['the', 'my', 'our'])} {pick(rng, ADJECTIVES + tuple(DAYS))} {noun}"
        return Phrase.of(text, "event")

    def org(self) -> Phrase:
        rng = self.rng
        name = values.org(rng, self.split) if rng.random() < 0.7 else values.value(rng, self.split, "company")
        if rng.random() < 0.15:
            name = f"the {pick(rng, ['bakery', 'gym', 'library', 'pharmacy', 'school', 'bank', 'post office', 'pool', 'museum', 'cinema', 'office', 'shop'])}"
        return Phrase.of(name, "org")

    def bare(self) -> Phrase:
        noun = pick(self.rng, BARE_EVENTS)
        return Phrase.of(noun, "bare")

    def phrase(self, kind: str) -> Phrase:
        return getattr(self, kind)()

    # Families of facts -----------------------------------------------------------------------------------------------

    def fact(self) -> Fact:
        """A fact of any family."""
        draw = self.rng.random()
        if draw < 0.23:
            return self.attribute()
        if draw < 0.5:
            return self.predicate()
        if draw < 0.61:
            return self.location()
        if draw < 0.71:
            return self.action()
        if draw < 0.8:
            return self.appointment()
        if draw < 0.85:
            return self.existence()
        return self.task() if draw < 0.9 else self.identity()

    def attribute_noun(self) -> str:
        rng, style = self.rng, self.rng.random()
        if style < 0.62:
            return pick(rng, ATTRIBUTES)
        if style < 0.8:
            return f"{pick(rng, OBJECTS)} {pick(rng, ['number', 'name', 'size', 'level', 'code', 'rate', 'type', 'date', 'limit', 'colour', 'price', 'count', 'password', 'key', 'order', 'budget', 'time'])}"
        if style < 0.92:
            return f"{pick(rng, ADJECTIVES)} {pick(rng, OBJECTS)}"
        return names.word(rng, self.split).lower()

    def attribute(
        self, owner: Phrase | None = None, noun: str | None = None, kind: str | None = None, value: str | None = None
    ) -> Fact:
        """ "Anna's shoe size is 38", "The wifi password is …", "code of the archive: 4815"."""
        rng, wording = self.rng, self.wording
        noun = noun or self.attribute_noun()
        if owner is None and rng.random() < 0.75:
            owner = self.phrase(pick(rng, ("person", "person", "thing", "event", "org", "org")))
            if rng.random() < 0.2:
                owner = ME if rng.random() < 0.8 else WE
        kind = kind or values.type_for(rng, noun)
        value = value or self.value(kind)
        forms = _owned(noun, owner)
        of = owner.text if owner and owner.person == 3 else None
        subject = pick(rng, forms)
        fields = {
            "np": subject,
            "NP": capital(subject),
            "v": value,
            "V": capital(value),
            "noun": noun,
            "an": article(noun),
        }
        if of and rng.random() < 0.3:
            sentence = pick(rng, wording.owner_statements).format(o=of, O=capital(of), **fields)
        else:
            sentence = pick(rng, wording.attribute_statements).format(**fields)
        synonyms = SYNONYMS.get(noun, ())
        asked = pick(rng, synonyms) if synonyms and rng.random() < 0.4 else noun
        np = _owned(asked, owner)
        direct = [form.format(np=pick(rng, np), noun=asked) for form in wording.attribute_questions]
        if of and owner is not None:
            direct += [form.format(o=of, noun=asked, an=article(asked)) for form in wording.owner_questions]
        direct += [form.format(np=pick(rng, np)) for form in wording.typed_questions.get(kind, ())]
        question = Question(
            f"{noun}|{owner.key if owner else ''}", value, direct,
            [form.format(np=pick(rng, np)) for form in wording.attribute_indirect],
            [*np, asked if owner is None else f"{asked} {owner.text}" if owner.person == 3 else f"my {asked}", f"{of} {asked}" if of else asked],
            np,
        )  # fmt: skip
        questions = [question]
        return Fact(
            sentence, questions, Phrase(subject, question.signature, "thing"),
            lambda rng, split: self.attribute(owner, noun, kind), forms, f"{subject} {value}" if owner else "", f"attribute {noun}",
        )  # fmt: skip

    def predicate(
        self, predicate: Predicate | None = None, subject: Phrase | None = None, value: str | None = None
    ) -> Fact:
        """ "Anna lives in Oslo", "The ferry leaves at 8:15", "We pay 40 euros"."""
        rng = self.rng
        predicate = predicate or pick(rng, self.wording.predicates)
        kind = pick(rng, predicate.subjects)
        if subject is None:
            subject = self.phrase(kind)
            if kind == "person" and rng.random() < 0.25:
                subject = ME if rng.random() < 0.8 else WE
        value = value or self.value(predicate.value_type)
        before = predicate.before
        if before.endswith("a ") and value[:1].lower() in "aeiou":
            before += "n "
            before = before.replace("a n ", "an ")
        tail = f"{before}{value}{predicate.after}"
        tense = "present" if rng.random() < 0.7 else "past" if rng.random() < 0.7 else "future"
        verb = _conjugate(predicate, subject, tense)
        adverb = pick(rng, self.wording.adverbs) if rng.random() < 0.2 else ""
        if adverb and predicate.verb.split()[0] == "be":
            body = f"{verb} {adverb} {tail}"
        else:
            body = f"{adverb} {verb} {tail}" if adverb and tense == "present" else f"{verb} {tail}"
        sentence = f"{capital(subject.text)} {body}"
        if before in ("at ", "on ", "in ") and predicate.verb != "be" and not predicate.after and rng.random() < 0.08:
            sentence = f"{capital(before)}{value}{pick(rng, [',', '', ','])} {subject.text} {verb}"
        signature = f"{predicate.name}|{subject.key}"
        question = self._predicate_questions(predicate, subject, value, signature, tense)
        if rng.random() < 0.2:  # asked in another tense than it was said
            other = self._predicate_questions(
                predicate, subject, value, signature, pick(rng, ["present", "past", "future"])
            )
            question.direct += other.direct
        if rng.random() < 0.3:  # whether, which is answered with what is true
            said = value if rng.random() < 0.6 else self.value(predicate.value_type)
            tail = f"{predicate.before}{said}{predicate.after}"
            question.direct.append(
                f"{_be(subject, tense)} {subject.text} {tail}"
                if predicate.verb == "be" and tense != "future"
                else f"{_do(subject, tense)} {subject.text} {predicate.verb} {tail}"
            )
        gap_verb = predicate.verb == "be" or subject.person == 1
        return Fact(
            sentence, [question], subject, lambda rng, split: self.predicate(predicate, subject),
            [form for noun in predicate.nouns for form in _owned(noun, subject)], "" if gap_verb else f"{subject.text} {tail}",
            f"{predicate.name} {tense}",
        )  # fmt: skip

    def _predicate_questions(
        self, predicate: Predicate, subject: Phrase, value: str, signature: str, tense: str
    ) -> Question:
        direct, indirect, described = [], [], []
        s = subject.text
        verb, before, after = predicate.verb, predicate.before, predicate.after
        preposition = before.strip()
        for wh in predicate.wh:
            # "where" swallows the preposition; "which town" and "who" leave it at the end.
            stranded = (
                ""
                if wh in ("where", "when", "how", "why", "what time", "what day") or wh.startswith("how ")
                else preposition
            )
            if wh.startswith("how many"):
                stranded = ""
            if stranded in ("a", "the", "an", "a "):
                stranded = ""
            stranded = stranded.removesuffix(" a").removesuffix(" the").removesuffix(" size")
            rest = after.strip() if wh.split()[0] not in ("how",) else ""
            if wh.startswith("how ") and (words := wh.split()[1:]):
                rest = ""
                if verb == "be":  # how old is S, how tall is S
                    direct.append(_ask_be(f"how {' '.join(words)}", subject, tense))
                    indirect.append(f"how {' '.join(words)} {s} {_be(subject, tense)}")
                    continue
                keep = before.strip()  # "how much does Anna owe me"
                if keep in ("the", "a"):
                    keep = ""
                direct.append(f"{wh} {_do(subject, tense)} {s} {verb} {keep}".strip())
                indirect.append(f"{wh} {s} {_conjugate(predicate, subject, tense)} {keep}".strip())
                continue
            if verb == "be":
                extra = preposition
                for lost in ("in", "at", "on", "from"):
                    if wh.split()[0] in ("where", "when") or wh in ("what time", "what day", "which day"):
                        extra = extra.removesuffix(lost).strip()
                if wh.startswith("wh") and wh in ("what colour", "which colour"):
                    extra = ""
                tail = f"{extra} {rest}".strip()
                direct.append(f"{_ask_be(wh, subject, tense)} {tail}".strip())
                indirect.append(f"{wh} {s} {_be(subject, tense)} {tail}".strip())
            else:
                tail = f"{stranded} {rest}".strip()
                if wh in ("where", "when", "how", "why", "what time", "what day", "which day"):
                    words = preposition.split()
                    tail = (
                        " ".join(words[:-1])
                        if len(words) > 1 and words[-1] in ("in", "at", "on", "to", "for", "from", "by")
                        else ""
                    )
                    if wh == "where" and preposition in ("from",):
                        tail = "from"
                direct.append(f"{wh} {_do(subject, tense)} {s} {verb} {tail}".strip())
                indirect.append(f"{wh} {s} {_conjugate(predicate, subject, tense)} {tail}".strip())
                if wh.startswith("which") and stranded:
                    direct.append(f"{stranded} {wh} {_do(subject, tense)} {s} {verb}")
        short = []
        for noun in predicate.nouns:
            forms = _owned(noun, subject)
            direct += (
                [f"what is {form}" for form in forms[:2]]
                if predicate.value_type != "person"
                else [f"who is {form}" for form in forms[:2]]
            )
            short += forms
            described += forms
        person = predicate.value_type == "person"
        if preposition and verb != "be" and not after:
            head = (
                "person"
                if person
                else {"town": "town", "org": "place", "company": "company", "place": "place"}.get(predicate.value_type)
            )
            if head:
                described.append(f"the {head} {s} {_conjugate(predicate, subject, tense)} {preposition}")
        key = subject.key
        aliases = [f"{noun}|{key}" for noun in predicate.nouns]
        if verb == "be" or subject.kind in ("event", "bare"):
            aliases += [f"{wh.split()[0]}|{key}" for wh in predicate.wh if wh.split()[0] in ("where", "when", "who")]
        return Question(
            signature, value, direct, indirect, short or [f"{s} {predicate.wh[0]}"], described, tuple(aliases)
        )

    def location(self, thing: Phrase | None = None) -> Fact:
        """ "The key is under the blue pot", "I left my bike behind the church"."""
        rng, wording = self.rng, self.wording
        thing = thing or self.thing()
        value = self.value("spot")
        be = "are" if thing.plural else "is"
        form = pick(rng, wording.locations)
        who = self.person() if "{p}" in form else ME
        sentence = capital(
            form.format(
                t=thing.text,
                T=capital(thing.text),
                v=value,
                be=be,
                s="" if thing.plural else "s",
                p=who.text,
                P=capital(who.text),
            )
        )
        direct = [
            q.format(t=thing.text, be=be, do="do" if thing.plural else "does") for q in wording.location_questions
        ]
        indirect = [q.format(t=thing.text, be=be) for q in wording.location_indirect]
        return Fact(
            sentence, [Question(f"location|{thing.key}", value, direct, indirect, [thing.text, f"location of {thing.text}"], [], (f"where|{thing.key}",))], thing,
            lambda rng, split: self.location(thing), [thing.text, f"the location of {thing.text}"],
            f"{thing.text} {value}" if form.startswith("{t} {be}") else "", "location",
        )  # fmt: skip

    def action(self) -> Fact:
        """ "Anna sold the old piano to Tom on Tuesday for 40 euros": every part can be asked for."""
        rng = self.rng
        who = ME if rng.random() < 0.15 else self.person()
        human = rng.random() < 0.2
        base, past = pick(rng, MEETINGS if human else TRANSITIVES)
        what = self.person() if human else self.thing()
        if what.text.startswith(("my ", "our ")) and rng.random() < 0.7 and not human:
            what = Phrase.of(f"the {pick(rng, OBJECTS)}", "thing")
        parts: list[tuple[str, str, str]] = []  # (wh, preposition, value)
        if rng.random() < 0.55:
            parts.append(pick(rng, [("when", "on ", self.value("day")), ("when", "at ", self.value("time")), ("when", "in ", self.value("month")),
                                    ("when", "on ", self.value("date")), ("when", "in ", self.value("year"))]))  # fmt: skip
        if rng.random() < 0.45:
            parts.append(("where", pick(rng, ["in ", "at ", "near "]), self.value(pick(rng, ("town", "place", "org")))))
        if rng.random() < 0.25 and not human:
            parts.append(("how much", "for ", self.value("price")))
        if rng.random() < 0.25:
            parts.append(("with whom", "with ", self.value("person")))
        rng.shuffle(parts)
        front = parts.pop() if parts and parts[-1][0] in ("when", "where") and rng.random() < 0.25 else None
        sentence = (
            f"{who.text if front and who.person == 1 else who.text if front else capital(who.text)} {past} {what.text}"
            + "".join(f" {p}{v}" for _, p, v in parts)
        )
        if front:
            sentence = f"{capital(front[1])}{front[2]}{pick(rng, [',', ',', ''])} {sentence}"
            parts.append(front)
        s, o, key = who.text, what.text, f"{base}|{what.key}"
        asks = [
            Question(f"who {key}", s, [f"who {past} {o}", f"who was it that {past} {o}", *([f"who has {past} {o}"] if past.endswith("ed") else []),
                                       *([f"by whom was {o} {past}", f"who was {o} {past} by"] if past.endswith("ed") else [])], [f"who {past} {o}"], [f"who {past} {o}"], [f"the person who {past} {o}"]),
            Question(f"what {base}|{who.key}", o, [f"{'who' if human else 'what'} did {s} {base}", f"{'whom' if human else 'which thing'} did {s} {base}"], [f"{'who' if human else 'what'} {s} {past}"], [f"what {s} {past}"]),
        ]  # fmt: skip
        if who.person == 1:
            asks = asks[1:]
        for wh, preposition, value in parts:
            forms = {
                "when": ("when",),
                "where": ("where",),
                "how much": ("how much", "for how much", "what price"),
                "with whom": ("who", "with whom"),
            }[wh]
            direct, indirect = [], []
            for form in forms:
                end = (
                    " with"
                    if form == "who"
                    else " for"
                    if form in ("how much", "what price") and rng.random() < 0.6
                    else ""
                )
                direct.append(f"{form} did {s} {base} {o}{end}")
                indirect.append(f"{form} {s} {past} {o}{end}")
                if past.endswith("ed") and form in ("when", "where") and not human:
                    direct.append(f"{form} was {o} {past}")
            asked = value if wh != "where" else f"{preposition}{value}"
            asks.append(Question(f"{wh} {key}|{who.key}", asked, direct, indirect, [], [], (f"{wh} {key}",)))
        return Fact(sentence, asks, who)

    def appointment(self, event: Phrase | None = None) -> Fact:
        """ "The meeting is on Tuesday at 14:30 in room 204": three values in one sentence."""
        rng, wording = self.rng, self.wording
        event = event or (self.bare() if rng.random() < 0.25 else self.event())
        parts = []
        day = pick(rng, ("day", "date"))
        if rng.random() < 0.8:
            parts.append(("day", "on ", self.value(day)))
        if rng.random() < 0.75 or not parts:
            parts.append(("time", "at ", self.value("time")))
        if rng.random() < 0.6:
            parts.append(
                (
                    "place",
                    "in " if rng.random() < 0.7 else "at ",
                    self.value(pick(rng, ("room", "place", "town", "org"))),
                )
            )
        if rng.random() < 0.2:
            parts.append(("person", "with ", self.value("person")))
        if rng.random() < 0.35:
            rng.shuffle(parts)
        verb = pick(rng, wording.appointment_verbs)
        sentence = f"{capital(event.text)} {verb} " + " ".join(f"{p}{v}" for _, p, v in parts)
        e, asks = event.text, []
        joined = self._when(parts)
        for kind, preposition, value in parts:
            direct = [q.format(e=e) for q in wording.appointment_questions[kind]]
            indirect = [q.format(e=e) for q in wording.appointment_indirect[kind]]
            if kind == "place" and preposition + value in sentence:
                value = preposition + value
            asks.append(Question(f"{kind}|{event.key}", value, direct, indirect, [f"{e} {word}" for word in wording.appointment_words[kind]], [],
                                 (f"where|{event.key}",) if kind == "place" else ()))  # fmt: skip
        if joined:
            asks.append(
                Question(
                    f"when|{event.key}",
                    joined,
                    [q.format(e=e) for q in wording.when_questions],
                    [f"when {e} is"],
                    [f"{e} when"],
                )
            )
        return Fact(sentence, asks, event, lambda rng, split: self.appointment(event), [event.text], "", "appointment")

    @staticmethod
    def _when(parts) -> str:
        """The text of day and time where they stand side by side, else the only one of them."""
        kinds = [kind for kind, _, _ in parts]
        both = [(p, v) for kind, p, v in parts if kind in ("day", "time")]
        if len(both) == 2:
            if abs(kinds.index("day") - kinds.index("time")) != 1:
                return ""
            return f"{both[0][1]} {both[1][0]}{both[1][1]}"
        return both[0][1] if both else ""

    def existence(self) -> Fact:
        """ "There are 12 eggs in the fridge", "We have 40 chairs", "I need 3 kilos of rice"."""
        rng, wording = self.rng, self.wording
        noun = pick(rng, OBJECTS + FOODS)
        plural = noun if noun.endswith("s") else f"{noun}s"
        count, spot = self.value("count"), self.value("spot")
        if rng.random() < 0.3:  # "there is a spare key behind the cactus"
            thing = Phrase.of(f"{pick(rng, ['a', 'another', 'some', 'one'])} {pick(rng, ADJECTIVES)} {noun}", "thing")
            thing = Phrase(thing.text, " ".join(thing.text.split()[1:]), "thing")
            sentence = pick(
                rng,
                [
                    "There is {t} {v}",
                    "There's {t} {v}",
                    "You have {t} {v}",
                    "We have {t} {v}",
                    "I saw {t} {v}",
                    "I put {t} {v}",
                    "{V} there is {t}",
                ],
            ).format(t=thing.text, v=spot, V=capital(spot))
            asked = f"the {thing.key}"
            question = Question(f"location|{thing.key}", spot, [q.format(t=asked, be="is", do="does") for q in wording.location_questions],
                                [q.format(t=asked, be="is") for q in wording.location_indirect], [asked, f"a {thing.key}"], [], (f"where|{thing.key}",))  # fmt: skip
            return Fact(sentence, [question], Phrase(asked, thing.key, "thing"))
        who = ME if rng.random() < 0.6 else self.person()
        verb = pick(rng, ["have", "need", "own", "buy", "sell", "order", "want"])
        if rng.random() < 0.5:
            sentence = pick(
                rng,
                [
                    "There are {n} {p} {v}",
                    "{n} {p} are {v}",
                    "{V} there are {n} {p}",
                    "We have {n} {p} {v}",
                    "I counted {n} {p} {v}",
                    "I put {n} {p} {v}",
                ],
            ).format(n=count, p=plural, v=spot, V=capital(spot))
            many = Question(f"how many {plural}", count, [f"how many {plural} are {spot}", f"how many {plural} are there", f"how many {plural} do we have", f"what is the number of {plural}", f"how many {plural} are there {spot}"],
                            [f"how many {plural} there are"], [f"number of {plural}", f"{plural} count"])  # fmt: skip
            where = Question(
                f"location|{plural}",
                spot,
                [q.format(t=f"the {plural}", be="are", do="do") for q in wording.location_questions],
                [f"where the {plural} are"],
                [f"the {plural}"],
                [],
                (f"where|{plural}",),
            )
            return Fact(capital(sentence), [many, where], Phrase(f"the {plural}", plural, "thing", plural=True))
        does = "do" if who.person == 1 else "does"
        shown = verb if who.person == 1 else third_person(verb)
        sentence = f"{capital(who.text)} {shown} {count} {plural}"
        question = Question(f"how many {plural} {verb}|{who.key}", count, [f"how many {plural} {does} {who.text} {verb}", f"how many {plural} will {who.text} {verb}"], [f"how many {plural} {who.text} {shown}"],
                            [f"number of {plural}", f"{who.text} {plural}" if who.person == 3 else f"my {plural}"], [], (f"how many {plural}",))  # fmt: skip
        return Fact(sentence, [question], who)

    def task(self) -> Fact:
        """ "Please hand in the report by Friday", "Anna has to call the bank at 9:30": somebody, something, when."""
        rng = self.rng
        who = ME if rng.random() < 0.4 else self.person()
        base, _ = pick(rng, TRANSITIVES)
        what = self.thing()
        preposition, value = pick(
            rng,
            [
                ("by ", self.value("day")),
                ("by ", self.value("time")),
                ("at ", self.value("time")),
                ("on ", self.value("day")),
                ("before ", self.value("time")),
                ("until ", self.value("date")),
                ("on ", self.value("date")),
            ],
        )
        s, o, verb = who.text, what.text, base
        if who.person == 1:
            form = pick(rng, ["I have to {b} {o} {t}", "I need to {b} {o} {t}", "Please {b} {o} {t}", "Don't forget to {b} {o} {t}", "Remember to {b} {o} {t}", "We must {b} {o} {t}", "I should {b} {o} {t}",
                              "{B} {o} {t}", "You have to {b} {o} {t}", "I promised to {b} {o} {t}", "To do: {b} {o} {t}", "I want to {b} {o} {t}", "We are going to {b} {o} {t}", "Todo {b} {o} {t}"])  # fmt: skip
        else:
            form = pick(rng, ["{S} has to {b} {o} {t}", "{S} needs to {b} {o} {t}", "{S} will {b} {o} {t}", "{S} must {b} {o} {t}", "{S} is going to {b} {o} {t}", "{S} promised to {b} {o} {t}",
                              "{S} should {b} {o} {t}", "{S} wants to {b} {o} {t}", "{S} is supposed to {b} {o} {t}", "{S} can {b} {o} {t}", "Tell {s} to {b} {o} {t}", "Remind {s} to {b} {o} {t}"])  # fmt: skip
        sentence = form.format(S=capital(s), s=s, b=verb, B=capital(verb), o=o, t=preposition + value)
        subject = s if who.person == 3 else pick(rng, ["I", "we", "you"])
        do = "does" if who.person == 3 else "do"
        when = Question(
            f"when {base}|{what.key}", value,
            [f"when {do} {subject} have to {verb} {o}", f"by when {do} {subject} have to {verb} {o}", f"when must {subject} {verb} {o}", f"when should {subject} {verb} {o}", f"when will {subject} {verb} {o}",
             f"what is the deadline for {o}", f"when is {o} due", f"when does {o} have to be ready", f"until when can {subject} {verb} {o}"],
            [f"when {subject} {'has' if who.person == 3 else 'have'} to {verb} {o}"], [f"deadline for {o}", f"{verb} {o}"],
        )  # fmt: skip
        asks = [when]
        if who.person == 3:
            asks.append(
                Question(
                    f"who {base}|{what.key}",
                    s,
                    [
                        f"who has to {verb} {o}",
                        f"who will {verb} {o}",
                        f"who should {verb} {o}",
                        f"who is going to {verb} {o}",
                    ],
                    [f"who has to {verb} {o}"],
                    [],
                )
            )
            asks.append(
                Question(
                    f"what {base}|{who.key}",
                    o,
                    [f"what does {s} have to {verb}", f"what will {s} {verb}", f"what should {s} {verb}"],
                    [f"what {s} has to {verb}"],
                    [],
                )
            )
        return Fact(sentence, asks, who)

    def identity(self) -> Fact:
        """ "Rex is my dog", "My dentist is called Mira", "The boss of Zeltec is Tom"."""
        rng, style = self.rng, self.rng.random()
        if style < 0.45:
            owner = ME if rng.random() < 0.5 else self.person()
            relation = pick(rng, RELATIONS)
            return self._relation(owner, relation)
        if style < 0.75:
            org = self.org()
            role = pick(
                rng,
                (
                    *JOBS,
                    "director",
                    "manager",
                    "owner",
                    "boss",
                    "head chef",
                    "founder",
                    "president",
                    "captain",
                    "chair",
                ),
            )
            return self._role(org, role)
        return self._naming(self.thing() if rng.random() < 0.5 else self.event())

    def _relation(self, owner: Phrase, relation: str, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or (
            names.given(rng, self.split)
            if rng.random() < 0.75
            else f"{names.given(rng, self.split)} {names.surname(rng, self.split)}"
        )
        np = f"{owner.possessive} {relation}"
        sentence = capital(pick(rng, wording.relation_statements).format(np=np, NP=capital(np), v=name))
        question = Question(
            f"relation {relation}|{owner.key}", name, [q.format(np=np) for q in wording.relation_questions],
            [q.format(np=np) for q in wording.relation_indirect], [np, f"{np}'s name"], [np] if owner.person == 1 else [np, f"the {relation} of {owner.text}"],
        )  # fmt: skip
        back = Question(
            f"who is|{name.lower()}",
            np,
            [
                f"who is {name}",
                f"who's {name}",
                f"how is {name} related to {'me' if owner.person == 1 else owner.text}",
            ],
            [f"who {name} is"],
            [name],
        )
        return Fact(
            sentence, [question, back], Phrase(name, name.lower(), "person"), lambda rng, split: self._relation(owner, relation), [np], "", "relation",
        )  # fmt: skip

    def _role(self, org: Phrase, role: str, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or self.value("person")
        np = f"the {role} {pick(rng, ['of', 'at'])} {org.text}"
        sentence = capital(pick(rng, wording.relation_statements).format(np=np, NP=capital(np), v=name))
        question = Question(
            f"role {role}|{org.key}", name, [q.format(np=np) for q in wording.relation_questions], [q.format(np=np) for q in wording.relation_indirect],
            [np, f"{org.text}'s {role}", f"{role} of {org.text}"], [np, f"{org.text}'s {role}"],
        )  # fmt: skip
        return Fact(
            sentence, [question], Phrase(name, name.lower(), "person"), lambda rng, split: self._role(org, role), [np], "", "role",
        )  # fmt: skip

    def _naming(self, thing: Phrase, value: str | None = None) -> Fact:
        rng, wording = self.rng, self.wording
        name = value or names.word(rng, self.split)
        sentence = capital(pick(rng, wording.namings).format(t=thing.text, v=name, be="are" if thing.plural else "is"))
        question = Question(
            f"name|{thing.key}", name, [q.format(t=thing.text, be="are" if thing.plural else "is") for q in wording.naming_questions],
            [f"what {thing.text} {'are' if thing.plural else 'is'} called"], [f"name of {thing.text}", f"{thing.text} name"],
        )  # fmt: skip
        return Fact(
            sentence, [question], thing, lambda rng, split: self._naming(thing), [f"the name of {thing.text}"], "", "naming",
        )  # fmt: skip


def _owned(noun: str, owner: Phrase | None) -> list[str]:
    if owner is None:
        return [f"the {noun}"]
    if owner.person == 1:
        return [f"{owner.possessive} {noun}"]
    if owner.kind in ("thing", "event", "org", "bare"):
        return [f"the {noun} of {owner.text}", f"the {noun} for {owner.text}", f"{owner.possessive} {noun}"]
    return [f"{owner.possessive} {noun}", f"{owner.possessive} {noun}", f"the {noun} of {owner.text}"]


def _be(subject: Phrase, tense: str) -> str:
    if tense == "past":
        return "were" if subject.plural else "was"
    if tense == "future":
        return "will be"
    if subject.person == 1:
        return "are" if subject.plural else "am"
    return "are" if subject.plural else "is"


def _ask_be(wh: str, subject: Phrase, tense: str) -> str:
    if tense == "future":
        return f"{wh} will {subject.text} be"
    return f"{wh} {_be(subject, tense)} {subject.text}"


def _do(subject: Phrase, tense: str) -> str:
    if tense == "past":
        return "did"
    if tense == "future":
        return "will"
    return "do" if subject.person == 1 or subject.plural else "does"


def _conjugate(predicate: Predicate, subject: Phrase, tense: str) -> str:
    verb = predicate.verb
    head, _, rest = verb.partition(" ")
    if head == "be":
        return f"{_be(subject, tense)} {rest}".strip()
    if tense == "future":
        return f"will {verb}"
    if tense == "past":
        return f"had {rest}".strip() if head == "have" else predicate.past
    return verb if subject.person == 1 or subject.plural else third_person(verb)
