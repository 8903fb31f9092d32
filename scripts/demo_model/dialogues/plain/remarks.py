"""Remarks as people type them: something is mentioned, asked for, changed, or asked for though it was not told.

A change names its subject, repeats the statement with the new value, names the value before, or says nothing but the new value
right behind the old one.
"""

import re

from .. import manners
from ..phrases import Question, capital
from ..splits import pick, split_of
from ..turns import REFUSAL, Turn
from .remark_cases import Case, beside, draw
from .remark_telling import Remarked, RemarkTelling

# Kinds of values that could be taken for each other where only the value is named.
_ALIKE = (
    "clock time", "when date day dayish weekdays", "price amount number count age few port percent", "span tall weight size shopsize temp",
    "longcode secret handle password phone ip version flight spotcode seatnumber mail file number", "person firstname titled name petname word title band eatery company team org school town street place room floor address gate spot country",
    "dish thing goods drink medicine", "shade colour",
)  # fmt: skip
_VERBS = "reach|call|get|give|giving|cook for|meet|meeting|see|visit|lend|lent|collect|pick up|expect|promise|email|feed|fix|fixed|repairs|find|put|leave|keep"
_AFTER = {they: re.compile(rf"\b(to|for|with|about|of|from|on|at|under|{_VERBS}) {they}\b") for they in ("he", "she")}


def alike(one: str, other: str) -> bool:
    return one == other or any(one in group.split() and other in group.split() for group in _ALIKE)


class Remarks(RemarkTelling):
    """Changes what was told, and asks."""

    alone = True  # whether nothing else was told since, so that a value before says what is meant

    # Changes

    def changes_of(self, of: Remarked, slot: str) -> tuple[str, ...]:
        """Forms of a change in words of its own."""
        return of.case.slots[slot].changes[self.wording]

    def change(self, of: Remarked, slot: str) -> bool:
        rng, made = self.rng, of.case.slots[slot]
        known, old = self.writer.known.get(of.signature(slot)), of.values[slot]
        if known is None or known.fact is None or known.question.value.lower() != old.lower():
            return False
        back = known.previous is not None and rng.random() < 0.15
        filled = {slot: known.previous.question.value} if back and known.previous else self.fill(of, [slot])
        if filled is None:
            return False
        new = filled[slot]
        fields = {**of.about.fields, slot: new, "o": old, "v": new}
        rivals = any(
            alike(made.kind, e.case.slots[s].kind) for e in self.told for s in e.values if (e, s) != (of, slot)
        )
        own = [self.said(form, fields) for form in self.changes_of(of, slot)]
        again = [form for form in of.case.tellable(self.wording) if of.case.told_by(form) == [slot]]
        style, sentence = rng.random() if self.alone else 0.35 + 0.65 * rng.random(), ""
        if back and again and style > 0.2:
            sentence = self.frame("again").format(s=self.said(pick(rng, again), fields), o=old, v=new)
        elif self.last == (of, slot) and not rivals and style < 0.2:
            sentence = self.frame("short").format(v=new)
        elif style < 0.35 and not any(old in v for e in self.told for s, v in e.values.items() if (e, s) != (of, slot)):
            sentence = self.frame("named").format(v=new, o=old)
        elif again and style < 0.6:
            sentence = self.frame("restated").format(s=self.said(pick(rng, again), fields), o=old)
        elif own:
            sentence = pick(rng, own)
        if not sentence or new not in sentence:
            return False
        if sentence and rng.random() < 0.3:
            sentence = self.frame("sorry") + sentence
        of.values[slot] = new
        facts = self.facts([(of, slot)], sentence)
        if not facts:
            of.values[slot] = old
            return False
        self.say(sentence if self.sloppy else capital(sentence), [(facts[0], old)])
        self.last = (of, slot)
        return True

    # Questions

    def answered(self, of: Remarked, slot: str) -> None:
        known = self.writer.known.get(of.signature(slot))
        if known is None or not known.question.direct:
            return
        forms = self.with_pronoun(of, of.case.slots[slot].asks_of[self.wording], slot)
        if forms:
            known = type(known)(
                **{**known.__dict__, "question": Question(known.question.signature, known.question.value, forms)}
            )
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        self.writer.append(self.writer.ask_for(known, before))
        self.asked, self.last = self.asked + 1, None

    def with_pronoun(self, of: Remarked, asks, slot: str) -> list[str]:
        """Now and then: "how old is she", where nobody else was told."""
        if len(self.told) > 1 or of.case.mine or self.rng.random() > 0.15 or self.asked:
            return []
        them = of.about.fields["xo"]
        fields = {**of.about.fields, "x": of.about.they, "xs": of.about.fields["xr"]}
        forms = [form.format_map(fields) for form in asks if not of.case.unclear(form, slot, of.values)]
        after = _AFTER.get(of.about.they)
        return [after.sub(rf"\1 {them}", form) for form in forms] if after else forms

    def beside(self, case: Case) -> list[Case]:
        """Cases whose questions have no answer where this one was told."""
        return beside(case)

    def untold(self, of: Remarked) -> str | None:
        """A question without an answer, near to what was told."""
        rng, case, style = self.rng, of.case, self.rng.random()
        if style < 0.35:
            fresh = [s for s in case.slots if s not in of.values and case.slots[s].asks_of[self.wording]]
            asks = [ask for s in fresh for ask in of.asks(s, self.wording)]
            return pick(rng, asks) if asks else None
        if style < 0.6:
            forms = [form for form in case.untold if split_of(f"untold {form}") == self.wording]
            return pick(rng, forms).format_map(of.about.fields) if forms else None
        if style < 0.8 and not case.mine and of.values:
            other = draw(rng, self.split, case)
            if self.writer.mentions(other.key) or any(other.key == each.about.key for each in self.told):
                return None
            slot = pick(rng, list(of.values))
            forms = [f for f in case.slots[slot].asks_of[self.wording] if re.search(r"\{xs?\}", f)]
            self.writer.subjects.add(other.key)
            return pick(rng, forms).format_map(other.fields) if forms else None
        others = [c for c in self.beside(case) if not c.mine or not any(self.writer.mentions(key) for key in c.keys)]
        if not others or any(each is not of and each.about.key == of.about.key for each in self.told):
            return None
        other_case = pick(rng, others)
        asks = [f for s in other_case.slots.values() for f in s.asks_of[self.wording]]
        if not asks:
            return None
        if case.mine:
            self.writer.subjects |= set(other_case.keys)
        return pick(rng, asks).format_map(of.about.fields)

    def refuse(self, of: Remarked) -> bool:
        rng, writer = self.rng, self.writer
        text = self.untold(of)
        if text is None or re.sub(r" (the|my|our) ", " ", text.lower()) in writer.taken:
            return False
        asked = writer.phrase_question(Question(f"untold {text}", "", [text]))
        if self.parts and rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        thought = [("Nothing was said about that.", REFUSAL)] if rng.random() < writer.thinking else None
        turn = Turn(
            writer.join(before, asked), [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought
        )
        writer.append(turn)
        self.asked, self.last = self.asked + 1, None
        return True


def play(writer) -> int:
    """Append remarks to the conversation, or come back to earlier ones; returns the number of their questions."""
    rng, earlier = writer.rng, writer.remarks
    if earlier and rng.random() < 0.2:
        remarks = pick(rng, earlier)
        remarks.alone, remarks.last, remarks.asked = False, None, 0
        _go_on(remarks)
        return remarks.asked
    remarks = Remarks(writer)
    one = remarks.begin_case()
    if one is None:
        return 0
    style = rng.random()
    if style < 0.3 and not one.case.mine and (other := remarks.begin_case(one.case)) is not None:
        if rng.random() < 0.55 and not remarks.parallel(one, other):
            remarks.told.remove(other)
    elif style < 0.42:
        remarks.begin_case()
    for each in remarks.told:
        for _ in range(1 + int(rng.random() * 1.6)):
            remarks.tell(each)
            if rng.random() < 0.15:
                remarks.send()
    remarks.told = [each for each in remarks.told if each.values]
    if not remarks.told:
        remarks.send()
        return 0
    earlier.append(remarks)
    _go_on(remarks)
    return remarks.asked


def _go_on(remarks: Remarks) -> None:
    """Change and ask, a few times."""
    rng, writer = remarks.rng, remarks.writer
    for _ in range(1 + int(rng.random() ** 1.4 * 4.5)):
        of = pick(rng, remarks.told)
        slot, act = pick(rng, list(of.values)), rng.random()
        if act < 0.4 and remarks.change(of, slot):
            if rng.random() < 0.6:
                remarks.send()
            if rng.random() < 0.75 * writer.asks_at_once:
                asked = pick(rng, list(of.values)) if rng.random() < 0.25 else slot
                remarks.answered(of, asked)
        elif rng.random() < 0.9 * writer.asks_at_once:
            if rng.random() < 0.38:
                remarks.refuse(of)
            else:
                remarks.answered(of, slot)
    remarks.send()
