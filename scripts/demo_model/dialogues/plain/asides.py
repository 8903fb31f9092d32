"""Remarks among small talk: several people in one sentence, the user as one of them, names in quotes, and changes that are not called one.

Statements, questions and values are those of `remarks`, as all of its cases have them. Here a second clause leaves out its verb, a
change is nothing but the new statement, with a reason before it or the old value in passing, two subjects exchange their values, and
comments that tell nothing stand between a fact and its question.
"""

from ..phrases import capital
from ..refusals import seems_told
from ..splits import pick, split_of
from .aside_cases import OWN, SEVERAL
from .aside_telling import AsideTelling
from .remark_cases import CASES, Case
from .remark_telling import Remarked


class Asides(AsideTelling):
    """Changes what was told, and asks."""

    # Changes

    def change(self, of: Remarked, slot: str) -> bool:
        """As in remarks, or nothing but the new statement, perhaps with a reason or with the old value in passing."""
        rng = self.rng
        style = rng.random()
        if style < 0.4 or self.adds(of, slot):
            return super().change(of, slot)
        if style < 0.5:
            return self.exchange(of, slot)
        known, old = self.writer.known.get(of.signature(slot)), of.values[slot]
        again = [form for form in of.case.tellable(self.wording) if of.case.told_by(form) == [slot]]
        if known is None or known.fact is None or known.question.value != old or not again:
            return False
        filled = self.fill(of, [slot])
        if filled is None:
            return False
        fields = {**of.about.fields, **filled}
        if len(self.told) == 1 and self.alone and not of.case.mine and rng.random() < 0.35:
            fields |= {"x": of.about.they, "xs": of.about.fields["xr"]}
            again = [form for form in again if form.startswith(("{x} ", "{xs} "))] or again
        text = self.said(pick(rng, again), fields)
        if style < 0.65 and old not in " ".join(
            v for e in self.told for s, v in e.values.items() if (e, s) != (of, slot)
        ):
            sentence = self.aside("after_old").format(o=old, s=text)
        elif style < 0.85:
            sentence = self.aside("causes") + text
        else:
            sentence = self.aside("silent").format(s=text)
        return self.changed([(of, slot, filled[slot])], sentence)

    def adds(self, of: Remarked, slot: str) -> bool:
        """Whether a second value could be told beside the first one, so that the statement alone is no change."""
        return of.case.name.removeprefix("own ") in SEVERAL

    def changed(self, new: list[tuple[Remarked, str, str]], sentence: str) -> bool:
        """Say that these have new values."""
        before = [of.values[slot] for of, slot, _ in new]
        for of, slot, text in new:
            of.values[slot] = text
        facts = self.facts([(of, slot) for of, slot, _ in new], sentence)
        if len(facts) != len(new) or any(text not in sentence for _, _, text in new):
            for (of, slot, _), old in zip(new, before, strict=True):
                of.values[slot] = old
            return False
        self.say(sentence if self.sloppy else capital(sentence), list(zip(facts, before, strict=True)))
        self.last = None
        return True

    def exchange(self, of: Remarked, slot: str) -> bool:
        """Two subjects exchange their values: "They swapped: Benno is captain and Ayasha keeps the goal"."""
        rng = self.rng
        others = [
            e
            for e in self.told
            if e is not of
            and slot in e.values
            and e.case.name.removeprefix("own ") == of.case.name.removeprefix("own ")
        ]
        if not others:
            return False
        other, clauses = pick(rng, others), []
        pair = ((of, other.values[slot]), (other, of.values[slot]))
        for each, text in pair:
            known = self.writer.known.get(each.signature(slot))
            forms = [form for form in each.case.tellable(self.wording) if each.case.told_by(form) == [slot]]
            if known is None or known.question.value != each.values[slot] or not forms:
                return False
            clauses.append(self.said(pick(rng, forms), {**each.about.fields, slot: text}))
        sentence = self.aside("swaps") + pick(rng, (" and ", ", ", ", and ")).join(clauses)
        return self.changed([(each, slot, text) for each, text in pair], sentence)

    # Questions

    def answered(self, of: Remarked, slot: str) -> None:
        self.chat()
        super().answered(of, slot)

    def untold(self, of: Remarked) -> str | None:
        text = self.unsaid(of)
        return None if text is None or seems_told(self.writer, "".join(self.parts), text) else text

    def unsaid(self, of: Remarked) -> str | None:
        """A question without an answer: also for a told matter of somebody's brother, wife or boss."""
        rng, style = self.rng, self.rng.random()
        if style < 0.35 and (of.case.somebody or of.case.mine) and of.values:
            kin, slot = self.aside("kin"), pick(rng, list(of.values))
            case = of.case if of.case.somebody else self.case_of(of)
            if case is None or slot not in case.slots or any(kin in each.about.text for each in self.told):
                return None
            owner = (
                "my"
                if of.case.mine
                else of.about.fields["xr"]
                if len(self.told) == 1 and rng.random() < 0.5
                else f"{of.about.text}'s"
            )
            forms = [
                form for form in case.slots[slot].asks_of[self.wording] if "{xr}" not in form and "{xp}" not in form
            ]
            if self.writer.mentions(kin) or kin in "".join(self.parts) or not forms:
                return None
            self.writer.subjects.add(kin)
            text = f"{owner} {kin}"
            return pick(rng, forms).format_map({**of.about.fields, "x": text, "xs": text + "'s", "xo": "them"})
        if of.case.name.startswith("own ") and style < 0.6:
            forms = [form for form in of.case.untold if split_of(f"untold {form}") == self.wording]
            return pick(rng, forms) if forms else None
        if of.case.name.startswith("own "):
            asks = [ask for s in of.case.slots if s not in of.values for ask in of.asks(s, self.wording)]
            return pick(rng, asks) if asks else None
        return super().untold(of)

    def case_of(self, of: Remarked) -> Case | None:
        """The case of others that an own one was turned from."""
        name = of.case.name.removeprefix("own ")
        return CASES.get(name) if name in OWN else None


def play(writer, kind: type[Asides] = Asides) -> int:
    """Append remarks among comments to the conversation; returns the number of their questions."""
    rng, told = writer.rng, kind(writer)
    told.chat(0.7)
    if rng.random() < 0.4:
        told.several()
    else:
        one = told.draw_case()
        if one is not None and rng.random() < 0.35:
            told.draw_case()
        for each in list(told.told):
            told.tell(each)
            if rng.random() < 0.4:
                told.tell(each)
            told.chat(0.5)
            if rng.random() < 0.25:
                told.send()
    told.told = [each for each in told.told if each.values]
    if not told.told:
        told.send()
        return 0
    for _ in range(1 + int(rng.random() ** 1.4 * 4.5)):
        of = pick(rng, told.told)
        slot, act = pick(rng, list(of.values)), rng.random()
        if act < 0.42 and told.change(of, slot):
            told.chat(0.7)
            if rng.random() < 0.6:
                told.send()
            if rng.random() < 0.8 * writer.asks_at_once:
                told.answered(of, pick(rng, list(of.values)) if rng.random() < 0.25 else slot)
        elif rng.random() < 0.95 * writer.asks_at_once:
            if rng.random() < 0.22:
                told.refuse(of)
            else:
                told.answered(of, slot)
    told.send()
    return told.asked
