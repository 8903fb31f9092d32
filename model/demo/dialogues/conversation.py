"""Whole conversations: facts are stated, changed and asked for, between other text; thoughts of two steps; calls of functions."""

import random
import re
from dataclasses import dataclass, field
from typing import Any

from ..conversations.splits import pick
from . import filler, layouts, manners, tools
from .clauses import Fact, Grammar, Phrase, Question, capital
from .wording import WORDINGS

SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant with a long memory.", "You remember what the user tells you.", "Answer in one sentence.",
    "Answer from the conversation alone. Say so when you were not told.", "You are a friendly chatbot.", "Be concise.", "Today is Tuesday.",
)  # fmt: skip
# What a part of an assistant's text is, for its weight in the loss.
WORDS, VALUE, QUOTE, REFUSAL, CALL = "words", "value", "quote", "refusal", "call"
Piece = tuple[str, str]  # (text, what it is)


@dataclass
class Call:
    """Calls of functions, their results, and what is answered then."""

    calls: list[tuple[str, dict[str, Any]]]
    results: list[str]
    answer: list[Piece]
    thought: list[Piece] | None = None  # of the answer


@dataclass
class Turn:
    """What the user says and what is answered.

    kind: "stated", "updated", "unanswerable" or "two hops" for a question, by what was said of its fact; "call" for a function
    call; "talk" otherwise. value: the right answer of a question, at the beginning of its text.
    """

    user: str
    answer: list[Piece]
    kind: str = "talk"
    value: str = ""
    thought: list[Piece] | None = None  # None: the turn is answered without thinking
    call: Call | None = None
    # (turn, start, end): the sentence that holds the answer, in that turn's text.
    fact: tuple[int, int, int] | None = None
    distance: int = 0  # characters between that sentence and the question

    @property
    def assistant(self) -> str:
        return "".join(text for text, _ in self.answer)


@dataclass
class Conversation:
    system: str
    turns: list[Turn]
    functions: list[tools.Function] = field(default_factory=list)

    def messages(self, until: int | None = None) -> list[dict[str, Any]]:
        """Messages of the chat API up to the question of turn `until` (without its answer), or all of them."""
        turns = self.turns if until is None else self.turns[: until + 1]
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        for number, turn in enumerate(turns):
            messages.append({"role": "user", "content": turn.user})
            if number == until:
                break
            message: dict[str, Any] = {"role": "assistant", "content": turn.assistant}
            if turn.thought:
                message["reasoning_content"] = "".join(text for text, _ in turn.thought)
            messages.append(message)
        return messages


@dataclass
class Known:
    """A question that can be asked, and the sentence that answers it."""

    question: Question
    sentence: str
    where: tuple[int, int, int]
    at: int  # characters from the beginning of the conversation
    said: str  # "You said" or "Your text says"
    fact: Fact | None = None  # None for a line of a table or log
    old: str = ""  # the value before it was changed
    asked: bool = False


@dataclass
class Chain:
    """Two facts, the first of which names what the second is about, and the question that needs both."""

    first: Fact
    second: Fact
    question: str
    stated: int = 0


def yours(text: str) -> str:
    """A value as the assistant says it: "my dog" becomes "your dog"."""
    return re.sub(r"\b([Mm]y|[Oo]ur)\b", "your", re.sub(r"\bI\b", "you", re.sub(r"^(me|us)$", "you", text)))


_TYPOS = "abcdefghijklmnopqrstuvwxyz"


class Writer:
    """State of one conversation while it is generated. Lengths are in characters."""

    def __init__(self, rng, split: str, wording: str, thinking: float):
        self.rng, self.split, self.thinking = rng, split, thinking
        self.wording = WORDINGS[wording]
        self.grammar = Grammar(rng, split, self.wording)
        self.turns: list[Turn] = []
        self.known: dict[str, Known] = {}  # by signature
        self.taken: dict[str, str] = {}  # every signature and alias: the signature that owns it
        self.chains: list[Chain] = []
        self.pending: list[Fact] = []  # second facts of chains, still to be stated
        self.length = 0
        self.casual = rng.random() < 0.18  # types without capitals and full stops

    # Statements ------------------------------------------------------------------------------------------------------

    def free(self, fact: Fact) -> bool:
        return all(name not in self.taken for q in fact.questions for name in (q.signature, *q.aliases))

    def new_fact(self) -> Fact:
        """A fact whose questions nobody can confuse with those of another one."""
        for _ in range(30):
            fact = self._related() if self.known and self.rng.random() < 0.4 else self.grammar.fact()
            if fact is not None and self.free(fact):
                return fact
        return self.grammar.attribute()

    def _related(self) -> Fact | None:
        """About somebody or something that has been mentioned, or of the same kind: hard to tell apart."""
        known = pick(self.rng, list(self.known.values()))
        fact, grammar = known.fact, self.grammar
        if fact is None or (fact.subject.person == 1 and self.rng.random() < 0.5):
            return None
        subject = fact.subject
        if self.rng.random() < 0.55 and subject.kind in ("person", "animal", "org", "event"):
            if self.rng.random() < 0.35:
                return grammar.attribute(subject)
            fitting = [p for p in self.wording.predicates if subject.kind in p.subjects]
            return grammar.predicate(pick(self.rng, fitting), subject) if fitting else None
        if fact.frame.startswith("attribute "):
            return grammar.attribute(None, fact.frame.removeprefix("attribute "))
        named = [p for p in self.wording.predicates if fact.frame.startswith(p.name)]
        return grammar.predicate(named[0]) if named else None

    def dress(self, sentence: str) -> str:
        """The sentence as it is typed: lead-ins, additions, its end."""
        rng, style = self.rng, self.rng.random()
        if style < 0.16:
            lead = pick(rng, self.wording.leads)
            if style < 0.04:
                lead = f"{self.grammar.person().text} {pick(rng, ['told me that', 'said', 'says', 'told me', 'says that', 'mentioned that', 'thinks', 'wrote that', 'just told me'])} "
                lead = capital(lead)
            proper = sentence[:1].isupper() and sentence.split(" ", 1)[0].lower() not in (
                "the",
                "my",
                "our",
                "we",
                "you",
                "they",
                "for",
                "about",
                "as",
                "at",
                "on",
                "in",
                "with",
            )
            sentence = lead + (
                sentence
                if proper or (lead.rstrip().endswith(":") and rng.random() < 0.5)
                else sentence[:1].lower() + sentence[1:]
            )
        elif style < 0.23:
            sentence += pick(rng, self.wording.tails)
        if self.casual or rng.random() < 0.04:
            if rng.random() < 0.7:
                sentence = sentence[:1].lower() + sentence[1:]
            return sentence if rng.random() < 0.6 else sentence + "."
        return sentence + ("." if rng.random() < 0.9 else pick(rng, ["!", "", ";", " :)", "..."]))

    def state(self) -> tuple[str, list[tuple[Fact, str]]]:
        """The next sentence and its facts, each with the value that it replaces."""
        rng = self.rng
        changeable = [k for k in self.known.values() if k.fact and k.fact.remake and k.fact.topics]
        if changeable and rng.random() < 0.16:
            changed = self._change(pick(rng, changeable))
            if changed is not None:
                return changed
        if self.pending and rng.random() < 0.35:
            fact = self.pending.pop()
            if self.free(fact):
                return self.dress(fact.sentence), [(fact, "")]
        if rng.random() < 0.07:
            chain = self._chain()
            if chain is not None:
                return self.dress(chain.first.sentence), [(chain.first, "")]
        fact = self.new_fact()
        if rng.random() < 0.1:
            shared = self._second_verb(fact)
            if shared is not None:
                return shared
        if rng.random() < 0.14:
            other = self._parallel(fact)
            if (
                other is not None
                and self.free(other)
                and not {n for q in other.questions for n in (q.signature, *q.aliases)}
                & {n for q in fact.questions for n in (q.signature, *q.aliases)}
            ):
                second = (
                    other.gapped
                    if fact.gapped and other.gapped and other.frame == fact.frame and rng.random() < 0.5
                    else _lower(other.sentence)
                )
                joined = pick(rng, self.wording.joins).format(a=fact.sentence, b=second)
                return self.dress(joined), [(fact, ""), (other, "")]
        return self.dress(fact.sentence), [(fact, "")]

    def _second_verb(self, fact: Fact) -> tuple[str, list[tuple[Fact, str]]] | None:
        """ "Our cat is called Minka and eats only tuna": two facts of one subject."""
        subject = fact.subject
        text = capital(subject.text)
        if not fact.sentence.startswith(text + " ") or subject.kind not in (
            "person",
            "animal",
            "org",
            "event",
            "thing",
            "bare",
        ):
            return None
        fitting = [p for p in self.wording.predicates if subject.kind in p.subjects]
        if not fitting:
            return None
        second = self.grammar.predicate(pick(self.rng, fitting), subject)
        names = {n for q in fact.questions for n in (q.signature, *q.aliases)}
        if (
            not second.sentence.startswith(text + " ")
            or not self.free(second)
            or names & {n for q in second.questions for n in (q.signature, *q.aliases)}
        ):
            return None
        rest = second.sentence[len(text) + 1 :]
        sentence = (
            fact.sentence
            + pick(
                self.rng,
                [
                    " and ",
                    " and ",
                    ", and ",
                    " and also ",
                    ", but ",
                    " and he " if subject.kind == "person" and subject.person == 3 else " and ",
                    " and then ",
                ],
            )
            + rest
        )
        if self.rng.random() < 0.2 and subject.person == 3:
            sentence = (
                f"{text}, {'who' if subject.kind == 'person' else 'which'} {rest}, {fact.sentence[len(text) + 1 :]}"
            )
        return self.dress(sentence), [(fact, ""), (second, "")]

    def _parallel(self, fact: Fact) -> Fact | None:
        """Another fact of the same kind, for "Anna lives in Oslo and Tom in Bergen"."""
        if fact.frame.startswith("attribute ") and self.rng.random() < 0.7:
            return (
                self.grammar.attribute(None, fact.frame.removeprefix("attribute "))
                if self.rng.random() < 0.5
                else self.grammar.attribute()
            )
        named = [p for p in self.wording.predicates if fact.frame.startswith(p.name)]
        if named:
            return self.grammar.predicate(named[0])
        return self.grammar.fact() if self.rng.random() < 0.3 else None

    def _change(self, known: Known) -> tuple[str, list[tuple[Fact, str]]] | None:
        fact, old = known.fact, known.question.value
        assert fact is not None and fact.remake is not None
        new = fact.remake(self.rng, self.split)
        values = {q.signature: q.value for q in new.questions}
        if known.question.signature not in values or values[known.question.signature] == old:
            return None
        if fact.frame == "location" and self.rng.random() < 0.6:
            return self._move(fact, old)
        if fact.frame == "appointment" and self.rng.random() < 0.75:
            return self._shift(known, old)
        form = pick(self.rng, self.wording.changes)
        value = values[known.question.signature]
        if "{np}" in form or "{NP}" in form or "{new}" in form:
            if len(fact.questions) > 1 and fact.frame == "appointment":
                return None  # which of its parts has changed would be unclear
            topic = pick(self.rng, fact.topics)
            if fact.frame == "location":  # "the key is no longer in the drawer, it is under the mat"
                topic = fact.topics[0] if "moved" in form or "is" in form else fact.topics[-1]
            sentence = form.format(np=topic, NP=capital(topic), old=old, new=value)
            kept = [q for q in new.questions if q.signature == known.question.signature]
            new = Fact(sentence, kept, new.subject, new.remake, new.topics, "", new.frame)
        else:
            sentence = form.format(s=_lower(new.sentence), S=new.sentence, old=old)
        sentence = capital(sentence)
        if value not in sentence:
            return None
        return self.dress(sentence), [(new, old)]

    def _move(self, fact: Fact, old: str) -> tuple[str, list[tuple[Fact, str]]] | None:
        """ "We moved the printer to the copy room"."""
        rng, thing = self.rng, fact.subject
        form = pick(rng, self.wording.moves)
        place = f"the {self.grammar.value('phrase')}" if rng.random() < 0.4 else self.grammar.value("place")
        sentence = form.format(t=thing.text, T=capital(thing.text), n=place, p=self.grammar.person().text)
        question = fact.questions[0]
        again = Question(
            question.signature, place, question.direct, question.indirect, question.short, [], question.aliases
        )
        return self.dress(capital(sentence)), [
            (Fact(sentence, [again], thing, fact.remake, fact.topics, "", "location"), old)
        ]

    def _shift(self, known: Known, old: str) -> tuple[str, list[tuple[Fact, str]]] | None:
        """ "The meeting was moved to Friday": one part of an appointment changes, and its other parts stay."""
        rng, fact, question = self.rng, known.fact, known.question
        kind = question.signature.split("|")[0]
        if fact is None or kind not in ("day", "time"):
            return None
        new = self.grammar.value("time" if kind == "time" else pick(rng, ("day", "date")))
        event = fact.subject
        form = pick(rng, self.wording.shifts)
        sentence = form.format(E=capital(event.text), e=event.text, n=new, o=old, i="at " if kind == "time" else "on ")
        again = Question(
            question.signature, new, question.direct, question.indirect, question.short, [], question.aliases
        )
        whole = f"when|{event.key}"  # day and time together are no longer in one sentence
        if whole in self.known:
            previous = self.known.pop(whole).question
            if kind == "day":
                again.direct = [*again.direct, *previous.direct]
        return self.dress(capital(sentence)), [
            (Fact(sentence, [again], event, fact.remake, fact.topics, "", "appointment"), old)
        ]

    def _chain(self) -> Chain | None:
        """A first fact whose value is a person or place with a description, and a fact about that value."""
        rng, grammar = self.rng, self.grammar
        for _ in range(4):
            first = self.new_fact()
            question = first.questions[0]
            kind = {"relation": "person", "role": "person"}.get(first.frame)
            if (
                kind is None
                and first.frame.startswith("attribute ")
                and not question.value[:1].isdigit()
                and question.described
            ):
                noun = first.frame.removeprefix("attribute ")
                kind = (
                    "person" if noun in _PEOPLE else "org" if noun in ("bank", "hotel", "supplier", "brand") else None
                )
            if kind is None:
                named = [p for p in self.wording.predicates if first.frame.startswith(p.name)]
                kind = {"person": "person", "org": "org", "company": "org"}.get(named[0].value_type) if named else None
            if kind is None or not question.described or " and " in question.value:
                continue
            value = Phrase(question.value, question.value.lower(), kind)
            predicate = pick(rng, [p for p in self.wording.predicates if kind in p.subjects])
            if rng.random() < 0.6:
                second = grammar.predicate(predicate, value)
                described = Phrase(pick(rng, question.described), "?", kind)
                asked = grammar.predicate(predicate, described, second.questions[0].value).questions[0]
            else:
                noun = grammar.attribute_noun()
                second = grammar.attribute(value, noun)
                described = Phrase(pick(rng, question.described), "?", kind)
                asked = grammar.attribute(described, noun, None, second.questions[0].value).questions[0]
            if not self.free(second) or not asked.direct:
                continue
            chain = Chain(first, second, pick(rng, asked.direct))
            self.chains.append(chain)
            self.pending.insert(0, second)
            return chain
        return None

    def learn(self, fact: Fact, sentence: str, where: tuple[int, int, int], old: str, said: str = "You said") -> None:
        for question in fact.questions:
            if question.value not in sentence:  # the first word of a sentence is typed in either case
                first = question.value[:1]
                question.value = (first.upper() if first.islower() else first.lower()) + question.value[1:]
                if question.value not in sentence:
                    continue
            for name in (question.signature, *question.aliases):
                self.taken.setdefault(name, question.signature)
            previous = self.known.get(question.signature)
            before = previous.question.value if previous and previous.question.value != question.value else old
            self.known[question.signature] = Known(
                question, sentence, where, self.length + where[2], said, fact, before
            )
        for chain in self.chains:
            chain.stated += fact is chain.first or fact is chain.second

    def text(self, sentences: int, density: float) -> str:
        """User text with the given density of statements. Records where each fact is."""
        rng, parts, position = self.rng, [], 0

        def add(text: str, joiner: str) -> int:
            nonlocal position
            if parts:
                if self.casual and joiner == " " and parts[-1][-1:] not in ".!?;,":
                    joiner = pick(rng, ["\n", ". ", "\n"])
                parts.append(joiner)
                position += len(joiner)
            start = position
            parts.append(text)
            position += len(text)
            return start

        joiner = "\n" if rng.random() < 0.12 else " "
        while sentences > 0:
            if rng.random() >= density:
                count = min(sentences, 1 + int(rng.random() * 5))
                add(filler.paragraph(rng, self.split, count), "\n\n" if count > 3 and rng.random() < 0.3 else joiner)
                sentences -= count
                continue
            if rng.random() < 0.06:
                sentences -= self._layout(add)
                continue
            sentence, facts = self.state()
            start = add(sentence, joiner)
            for fact, old in facts:
                self.learn(fact, sentence, (len(self.turns), start, start + len(sentence)), old)
            sentences -= 1
        return "".join(parts)

    def _layout(self, add) -> int:
        """A table, a log, an e-mail …; returns its number of lines."""
        lines = pick(self.rng, layouts.LAYOUTS)(self.grammar)
        for number, (line, questions) in enumerate(lines):
            start = add(line, "\n" if number else pick(self.rng, ["\n\n", "\n"]))
            names = [(n, q) for q in questions for n in (q.signature, *q.aliases)]
            if any(n in self.taken for n, _ in names):
                for name, _ in names:  # asking would be ambiguous
                    self.known.pop(self.taken.get(name, name), None)
                    self.taken[name] = "ambiguous"
                continue
            for name, question in names:
                self.taken[name] = question.signature
            for question in questions:
                where = (len(self.turns), start, start + len(line))
                self.known[question.signature] = Known(
                    question, line.strip(), where, self.length + where[2], "Your text says"
                )
        add("", "\n")
        return len(lines)

    # Questions -------------------------------------------------------------------------------------------------------

    def phrase_question(self, question: Question) -> str:
        """One wording of a question, as people type it."""
        rng, style = self.rng, self.rng.random()
        if style < 0.17 and question.short:
            text = pick(rng, question.short)
            text = text.removeprefix("the ") if rng.random() < 0.6 else text
            return self._typed(text, "?" if rng.random() < 0.75 else "", 0.5)
        if style < 0.37 and question.indirect:
            text = pick(rng, self.wording.indirect).format(i=pick(rng, question.indirect))
            return self._typed(text, pick(rng, ["?", "?", ".", ""]), 0.75)
        if not question.direct:
            return self._typed(pick(rng, question.short), "?", 0.5)
        return self.typed_question(pick(rng, question.direct))

    def typed_question(self, text: str) -> str:
        rng = self.rng
        if rng.random() < 0.12:
            lead = pick(rng, self.wording.ask_leads)
            text = lead + text
        elif rng.random() < 0.1:
            text += pick(rng, self.wording.ask_tails)
        return self._typed(text, "?" if rng.random() < 0.85 else "", 0.8)

    def _typed(self, text: str, end: str, capitals: float) -> str:
        rng = self.rng
        if rng.random() < (0.2 if self.casual else capitals):
            text = capital(text)
        elif self.casual or rng.random() < 0.2:
            text = text.lower() if rng.random() < 0.3 else text
        if rng.random() < 0.03 and len(text) > 12:
            at = 3 + int(rng.random() * (len(text) - 6))
            change = rng.random()
            if change < 0.4:
                text = text[:at] + text[at + 1 :]
            elif change < 0.7:
                text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
            else:
                text = text[:at] + pick(rng, _TYPOS) + text[at:]
        return text + (end if not text.endswith("?") else "")

    def ask(self, before: str = "", *, prefer_updated: float = 0.35, unanswerable: float = 0.1) -> Turn:
        """A turn with a question, after the text `before` if given."""
        rng = self.rng
        thinks = rng.random() < self.thinking
        ready = [c for c in self.chains if c.stated == 2 and self._current(c.first) and self._current(c.second)]
        if ready and rng.random() < 0.35:
            return self._two_hops(pick(rng, ready), before, thinks)
        if rng.random() < unanswerable or not self.known:
            return self._refuse(before, thinks)
        candidates = [k for k in self.known.values() if not k.asked] or list(self.known.values())
        updated = [k for k in candidates if k.old]
        known = pick(rng, updated if updated and rng.random() < prefer_updated else candidates)
        known.asked = True
        text = self._join(before, self._renamed(known, self.phrase_question(known.question)))
        answer = _answer(known)
        thought = [(f"{known.said}: ", WORDS), (known.sentence, QUOTE)] if thinks else None
        kind = "updated" if known.old else "stated"
        return Turn(text, answer, kind, answer[0][0], thought, None, known.where, self.length + len(before) - known.at)

    def _renamed(self, known: Known, text: str) -> str:
        """The question with the subject called otherwise, where nothing else could be meant: "the car" for "my old car"."""
        rng = self.rng
        if known.fact is None or known.fact.subject.person == 1 or rng.random() > 0.22:
            return text
        name = known.fact.subject.text
        words = name.split()
        heads = [
            k.fact.subject.key.split()[-1]
            for k in self.known.values()
            if k.fact and k.fact.subject is not known.fact.subject and k.fact.subject.key != known.fact.subject.key
        ]
        if words[0] in ("my", "our", "the") and len(words) > 1:
            if len(words) > 2 and rng.random() < 0.5 and words[-1] not in heads:
                other = f"{pick(rng, ['the', words[0]])} {words[-1]}"
            elif known.fact.subject.kind in ("thing", "event", "animal"):
                other = " ".join([pick(rng, ["the", "my", "our"]), *words[1:]])
            else:
                return text
        elif (
            known.fact.subject.kind == "person"
            and len(words) == 2
            and words[0][0].isupper()
            and "'" not in name
            and "." not in name
        ):
            if any(
                words[0].lower() in k.question.signature
                for k in self.known.values()
                if k.fact and k.fact.subject.key != known.fact.subject.key
            ):
                return text
            other = (
                words[0]
                if words[0] not in ("Dr", "Mr", "Mrs", "Ms", "Professor", "Captain", "Uncle", "Aunt", "Doctor")
                else name
            )
        else:
            return text
        return text.replace(name, other)

    def _current(self, fact: Fact) -> bool:
        return any(k.fact is fact and not k.old for k in self.known.values())

    def _two_hops(self, chain: Chain, before: str, thinks: bool) -> Turn:
        first, second = (next(k for k in self.known.values() if k.fact is fact) for fact in (chain.first, chain.second))
        text = self._join(before, self.typed_question(chain.question))
        if not thinks:
            value = yours(first.question.value)
            answer = [
                (value, VALUE),
                (f" comes first: {first.said[0].lower()}{first.said[1:]}: ", WORDS),
                (first.sentence, QUOTE),
                (" Ask me about that, or turn thinking on.", WORDS),
            ]
            return Turn(text, answer, "two hops", value, None, None, first.where, 0)
        thought = [("First: ", WORDS), (first.sentence, QUOTE), (" Then: ", WORDS), (second.sentence, QUOTE)]
        answer = _answer(second)
        return Turn(
            text, answer, "two hops", answer[0][0], thought, None, second.where, self.length + len(before) - second.at
        )

    def _refuse(self, before: str, thinks: bool) -> Turn:
        """A question about something that was not said; most often it resembles what was."""
        for _ in range(20):
            fact = self._related() if self.known and self.rng.random() < 0.75 else self.grammar.fact()
            if fact is None or not self.free(fact):
                continue
            question = pick(self.rng, fact.questions)
            text = self._join(before, self.phrase_question(question))
            return Turn(
                text,
                [(manners.NOT_TOLD, REFUSAL)],
                "unanswerable",
                manners.NOT_TOLD,
                [("Nothing was said about that.", REFUSAL)] if thinks else None,
            )
        return self.talk()

    def _join(self, before: str, question: str) -> str:
        if not before:
            return question
        if before[-1] in ".!?;" or before.endswith("\n"):
            return f"{before}{pick(self.rng, [' ', ' ', chr(10), chr(10) * 2])}{question}"
        return f"{before}{pick(self.rng, [chr(10), chr(10) * 2, '. ', ', ', ' - ', ' '])}{question}"

    def talk(self) -> Turn:
        text, answer, question = manners.talk(self.rng, self.split)
        thought = [("", WORDS)] if self.rng.random() < self.thinking else None
        text = capital(text) if self.rng.random() < 0.55 else text
        text += (
            pick(self.rng, ["?", "?", "?", ""])
            if question
            else pick(self.rng, [".", "!", "", "?" if answer in (manners.WHO, manners.HELP) else "", ""])
        )
        return Turn(text, [(answer, REFUSAL)], "talk", "", thought)

    def append(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.length += len(turn.user) + len(turn.assistant) + 16

    # Functions -------------------------------------------------------------------------------------------------------

    def use(self, functions: list[tools.Function]) -> Turn:
        """A request that one of the functions serves, its call, and the answer."""
        rng = self.rng
        function = pick(rng, functions)
        thinks = rng.random() < self.thinking
        several = tools.both(rng, self.split, function) if rng.random() < 0.25 else None
        if several is not None:
            text, given = several
        else:
            given = [tools.arguments(rng, self.split, function)]
            text = tools.request(rng, function, given[0])
        results = [tools.result(rng, self.split, function) for _ in given]
        answer: list[Piece] = [
            (" and ".join(value for _, value in results), VALUE),
            (". The function says: ", WORDS),
            (" and ".join(text for text, _ in results), QUOTE),
        ]
        call = Call(
            [(function.name, arguments) for arguments in given],
            [text for text, _ in results],
            answer,
            [("", WORDS)] if thinks else None,
        )
        asks = text.startswith(("what", "how", "who", "where", "is ", "can "))
        typed = self._typed(text, "?" if asks else pick(rng, [".", "", "!"]), 0.7)
        # A typing error in an argument would make the call wrong.
        if any(str(value) not in typed for arguments in given for value in arguments.values()):
            typed = capital(text)
        return Turn(typed, [], "call", "", [("I call a function.", WORDS)] if thinks else None, call)


_PEOPLE = frozenset(
    """owner author editor director manager captain coach leader chair host sponsor contact client winner supervisor mentor tutor
landlord neighbour plumber dentist vet hairdresser founder""".split()
)


def _lower(sentence: str) -> str:
    """The sentence after a lead-in: a first word that is no name loses its capital."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].lower() + sentence[1:] if first in _LOWERED else sentence


_LOWERED = frozenset(
    "The My Our We You They For About As At On In With It Lunch Dinner Use Take Write Put Keep Note Save Somebody Look There She He Registration".split()
)


def _answer(known: Known) -> list[Piece]:
    value = yours(known.question.value)
    pieces: list[Piece] = [(value, VALUE), (f". {known.said}: ", WORDS), (known.sentence, QUOTE)]
    if known.old and known.old != known.question.value:
        pieces.append((" Before: ", WORDS))
        pieces.append((yours(known.old), QUOTE))
        pieces.append((".", WORDS))
    return pieces


_OVERHEAD = 130  # approximate characters of a question and its answer


def write(
    seed, *, length: int, split: str = "test", wording: str | None = None, questions: int | None = None, density: float | None = None,
    unanswerable: float = 0.1, prefer_updated: float = 0.35, thinking: float = 0.2, functions: float = 0.12,
) -> Conversation:  # fmt: skip
    """A conversation of about `length` characters, which depends only on the arguments.

    split: of names and values. wording: split of sentence frames and question forms; None: the same. questions: their number; half
    of them follow all statements. density: fraction of statements among the user's sentences; None: random, from 0.15 to 1.
    unanswerable: fraction of questions about facts that were not stated. prefer_updated: probability of asking for a changed
    fact, if any. thinking: fraction of turns answered after a thought. functions: probability that the conversation has functions.
    """
    rng = random.Random(f"{seed} {length} {split} {wording}")
    writer = Writer(rng, split, wording or split, thinking)
    box = tools.toolbox(rng, split) if length > 2000 and rng.random() < functions else []
    if questions is None:
        questions = max(3, min(40, int(length**0.5 / 6)))
    if density is None:
        density = 0.25 + 0.75 * rng.random()
    if box:
        length -= 1500 + sum(len(str(f.schema)) for f in box)
    body = max(length - questions * _OVERHEAD, length // 3)
    options: dict[str, Any] = {"unanswerable": unanswerable, "prefer_updated": prefer_updated}
    asked_early = 0
    early = questions // 2 if length > 1200 else questions // 3
    while writer.length - asked_early * _OVERHEAD < body:
        if rng.random() < 0.08:
            writer.append(writer.talk())
            continue
        if box and rng.random() < 0.5:
            writer.append(writer.use(box))
            continue
        left = body - (writer.length - asked_early * _OVERHEAD)
        sentences = min(int(1 + rng.random() ** 2 * (8 if rng.random() < 0.7 else 60)), left // 60 + 1)
        dense = density if rng.random() < 0.9 else 0.0
        text = writer.text(sentences, dense)
        due = asked_early < early and writer.known and rng.random() < 0.5
        if due and rng.random() < 0.4:
            writer.append(writer.ask(text, **options))
            asked_early += 1
            continue
        long = len(text) > 900 or dense == 0.0
        writer.append(
            Turn(
                text,
                [(manners.READ if long else manners.NOTED, WORDS)],
                thought=[("", WORDS)] if rng.random() < thinking else None,
            )
        )
        progress = writer.length / length
        while asked_early < early * progress and writer.known and rng.random() < 0.8:
            writer.append(writer.ask(**options))
            asked_early += 1
    for _ in range(questions - asked_early):
        writer.append(
            writer.use(box)
            if box and rng.random() < 0.3
            else writer.ask(**options)
            if rng.random() < 0.93
            else writer.talk()
        )
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns, box)
