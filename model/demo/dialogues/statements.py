"""Statements as they are typed: one fact or several in a sentence, changes of facts, texts of many sentences."""

import re
from dataclasses import replace

from . import chains, changes, filler, layouts
from .memory import Memory
from .phrases import Fact, Question, capital
from .scenes import CHANGES, STATEMENTS
from .splits import pick
from .turns import Known
from .wording import WORDINGS


class Statements(Memory):
    """Writes the user's statements and remembers their facts."""

    def dress(self, sentence: str, leads: bool = True) -> str:
        """The sentence as it is typed: lead-ins, additions, its end."""
        rng, style = self.rng, self.rng.random()
        if style < 0.16 and leads:
            lead = pick(rng, self.wording.leads)
            if style < 0.04:
                lead = f"{self.grammar.person().text} {pick(rng, ['told me that', 'said', 'says', 'told me', 'says that', 'mentioned that', 'thinks', 'wrote that', 'just told me'])} "
                lead = capital(lead)
            proper = sentence[:1].isupper() and sentence.split(" ", 1)[0].rstrip(":,") not in _LOWERED
            sentence = lead + (
                sentence
                if proper or (lead.rstrip().endswith(":") and rng.random() < 0.5)
                else sentence[:1].lower() + sentence[1:]
            )
        elif 0.16 <= style < 0.23:
            sentence += pick(rng, self.wording.tails)
        if self.casual or rng.random() < 0.04:
            if rng.random() < 0.7:
                sentence = sentence[:1].lower() + sentence[1:]
            return sentence if rng.random() < 0.6 else sentence + "."
        return sentence + ("." if rng.random() < 0.9 else pick(rng, ["!", "", ";", " :)", "..."]))

    def state(self) -> tuple[str, list[tuple[Fact, str]]]:
        """The next sentence and its facts, each with the value that it replaces."""
        rng = self.rng
        if rng.random() < 0.17:
            changeable = [k for k in self.known.values() if k.fact and (k.fact.remake or k.question.kind)]
            if self.latest is not None and rng.random() < 0.4:
                changeable = [k for k in changeable if k.fact is self.latest] or changeable
            changed = self._change(pick(rng, changeable)) if changeable else None
            if changed is not None:
                return changed
        if not self.pending and rng.random() < self.chained:
            chains.draw(self)
        if self.pending and rng.random() < (0.9 if self.hurries else 0.3):
            fact = self.pending.pop()
            if self.free(fact):
                return self.dress(fact.sentence), [(fact, "")]
        fact = self.new_fact()
        if rng.random() < 0.05 and len(fact.questions) == 1 and (kind := fact.questions[0].kind):
            false = self.grammar.slot(kind).text
            if false.lower() != fact.questions[0].value.lower():
                form = pick(rng, self.wording.contrasts)
                text = fact.sentence if form.startswith("{s}") else _lower(fact.sentence)
                return self.dress(capital(form.format(s=text, f=false))), [(fact, "")]
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
        """A statement after which another value holds: that value alone, a noun phrase, the verb, or all of it anew."""
        rng, wording, fact, old = self.rng, self.wording, known.fact, known.question
        assert fact is not None
        if fact.frame == "location" and rng.random() < 0.4:
            return self._move(fact, old.value)
        if fact.frame == "appointment" and rng.random() < 0.5 and old.kind in ("day", "date", "time"):
            return self._shift(known, old.value)
        if not old.kind:
            return self._restate(known)
        new = self.grammar.slot(old.kind)
        if new.person == 1 or new.text.lower() == old.value.lower():
            return None
        fields = {"new": new.text, "old": old.value}
        alone = fact is self.latest
        if alone and rng.random() < 0.6:
            # Where two values of a sentence have one kind, only the old value tells which of them has changed.
            forms = wording.elliptic
            if sum(q.kind == old.kind for q in fact.questions) > 1:
                forms = [form for form in forms if "{old}" in form]
        elif old.changes and rng.random() < 0.65:
            forms = old.changes
        elif old.topics and (rng.random() < 0.75 or not fact.remake):
            forms = wording.changes
            if old.kind in wording.changes_by_kind and rng.random() < 0.5:
                forms = wording.changes_by_kind[old.kind]
            topic = pick(rng, old.topics)
            fields |= {"np": topic, "renewed": changes.renewed(topic) or topic}
        else:
            return self._restate(known)
        sentence = capital(pick(rng, forms).format_map(fields))
        if new.text not in sentence and capital(new.text) not in sentence:
            return None
        question = replace(old, value=new.text)
        changed = Fact(sentence, [question], fact.subject, fact.remake, fact.topics, "", fact.frame)
        if old.kind in ("person", "firstname"):  # "what will Tom do" is no longer true
            for other in fact.questions:
                if other.signature != old.signature:
                    self.known.pop(other.signature, None)
        return self.dress(sentence, leads=False), [(changed, old.value)]

    def _restate(self, known: Known) -> tuple[str, list[tuple[Fact, str]]] | None:
        """The statement again, with another value."""
        fact, old = known.fact, known.question
        if fact is None or fact.remake is None:
            return None
        new = fact.remake(self.rng, self.split)
        question = next((q for q in new.questions if q.signature == old.signature and q.value != old.value), None)
        if question is None:
            return None
        form = pick(self.rng, self.wording.restated)
        sentence = capital(form.format(s=_lower(new.sentence), S=new.sentence, old=old.value))
        return (self.dress(sentence, leads=False), [(new, old.value)]) if question.value in sentence else None

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
                self.latest = None
                add(filler.paragraph(rng, self.split, count), "\n\n" if count > 3 and rng.random() < 0.3 else joiner)
                sentences -= count
                continue
            if rng.random() < 0.1:
                self.latest = None
                sentences -= self._layout(add)
                continue
            sentence, facts = self.state()
            self.latest = facts[0][0] if len(facts) == 1 else None
            start = add(sentence, joiner)
            for fact, old in facts:
                self.learn(fact, sentence, (len(self.turns), start, start + len(sentence)), old)
            sentences -= 1
        return "".join(parts)

    def _layout(self, add) -> int:
        """A table, a log, an e-mail …; returns its number of lines."""
        lines = pick(self.rng, layouts.LAYOUTS)(self.grammar)
        while self.subjects and any(self.names_subject(line) for line, _ in lines):
            lines = pick(self.rng, layouts.LAYOUTS)(self.grammar)
        for number, (line, questions) in enumerate(lines):
            start = add(line, "\n" if number else pick(self.rng, ["\n\n", "\n"]))
            where = (len(self.turns), start, start + len(line))
            for question in questions:
                names = (question.signature, *question.aliases)
                if not question.value:
                    self.missing.append(question)
                elif any(name in self.taken for name in names):
                    for name in names:  # asking would be ambiguous
                        self.known.pop(self.taken.get(name, name), None)
                        self.taken[name] = "ambiguous"
                else:
                    self.taken.update((name, question.signature) for name in names)
                    self.known[question.signature] = Known(
                        question, line.strip(), where, self.length + where[2], "Your text says"
                    )
        add("", "\n")
        return len(lines)


def _lower(sentence: str) -> str:
    """The sentence after a lead-in: a first word that is no name loses its capital."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].lower() + sentence[1:] if first in _LOWERED else sentence


_FIRST = re.compile(r"[a-z]+(?= |$)")  # of a frame that begins with a word of its own
_LOWERED = {
    capital(match[0])
    for forms in (*STATEMENTS.values(), *CHANGES.values(), *(wording.statements for wording in WORDINGS.values()))
    for form in forms
    if (match := _FIRST.match(form))
} | set(
    "The My Our We You They For About As At On In With It Lunch Dinner Breakfast Use Take Write Put Keep Note Save Somebody Look There She He Registration".split()
)
_LOWERED -= {"I"}
