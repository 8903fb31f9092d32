"""Changes of facts as sentences: the new value alone, a noun phrase, the verb, or the whole statement anew."""

import re
from dataclasses import replace

from . import changes
from .memory import Memory
from .phrases import Fact, Question, capital
from .scenes import CHANGES, STATEMENTS
from .splits import pick
from .turns import Known
from .wording import WORDINGS


class Revisions(Memory):
    """Writes statements after which another value holds."""

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
        sentence = capital(form.format(s=lower(new.sentence), S=new.sentence, old=old.value))
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


def lower(sentence: str) -> str:
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
