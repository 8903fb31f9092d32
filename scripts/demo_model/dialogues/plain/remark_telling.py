"""Tells remarks: a statement of a case, perhaps with an opener, a reason or a second fact, typed neatly or not."""

import re

from .. import texts
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of
from .matter_words import apart
from .remark_cases import REMARKS, Case, Pool, Subject, draw
from .sketch_blocks import article
from .telling import Telling

_FRAMES = {
    name: forms.split("|")
    for name, forms in (
        part.strip("\n").split("\n", 1) for part in texts.read("remark_frames").removeprefix("@ ").split("\n@ ")
    )
}
FRAMES = {
    name: {split: [form for form in forms if split_of(f"remark {name} {form}") == split] for split in SPLITS}
    for name, forms in _FRAMES.items()
}
_SLOPPY = {
    "i'm": "im", "don't": "dont", "can't": "cant", "it's": "its", "what's": "whats", "where's": "wheres", "who's": "whos", "didn't": "didnt", "isn't": "isnt", "doesn't": "doesnt",
    "that's": "thats", "won't": "wont", "couldn't": "couldnt", "you'll": "youll", "he's": "hes", "she's": "shes", "they're": "theyre", "we're": "were", "i'll": "ill",
}  # fmt: skip
_EXACT = frozenset("longcode secret handle password code mail url ip file version flight".split())


class Remarked:
    """One case about one subject, and the value of each slot that was told."""

    def __init__(self, case: Case, about: Subject):
        self.case, self.about = case, about
        self.values: dict[str, str] = {}

    def signature(self, slot: str) -> str:
        return f"remark {self.case.name} {slot}|{self.about.key}"

    def asks(self, slot: str, wording: str, fields: dict[str, str] | None = None) -> list[str]:
        """Its questions, but for those that another slot could be meant by."""
        known = fields or self.about.fields
        forms = self.case.slots[slot].asks_of[wording]
        return [form.format_map(known) for form in forms if not self.case.unclear(form, slot, self.values)]

    def question(self, slot: str, wording: str) -> Question:
        made, known = self.case.slots[slot], self.about.fields
        nouns = [noun.format_map(known) for noun in made.nouns]
        plain = [
            noun for noun in nouns if re.match(r"(the|my|our) (?!(person|one|place|thing)\b)", noun) or "'s " in noun
        ]
        every = {re.sub(r" (the|my|our) ", " ", ask.format_map(known).lower()) for ask in made.asks}
        every |= {f"{noun.lower()}|remark" for noun in nouns}
        asks = self.asks(slot, wording)
        return Question(
            self.signature(slot), self.values.get(slot, ""), asks, [f"what {noun} is" for noun in plain if made.kind not in ("person", "firstname", "titled")],
            plain, [], tuple(sorted(every)), "", [], plain,
        )  # fmt: skip


class RemarkTelling(Telling):
    """Tells a few cases."""

    pool: Pool = REMARKS

    def __init__(self, writer):
        super().__init__(writer)
        self.told: list[Remarked] = []
        self.sloppy = self.rng.random() < (0.6 if writer.casual else 0.22)
        self.last: tuple[Remarked, str] | None = None  # what the sentence before told, if nothing else

    def frame(self, name: str) -> str:
        return pick(self.rng, FRAMES[name][self.wording] or FRAMES[name]["train"])

    # Subjects and values

    def begin_case(self, case: Case | None = None, about: Subject | None = None) -> Remarked | None:
        rng, writer = self.rng, self.writer
        case = case or pick(rng, self.pool.cases[self.wording])
        about = about or draw(rng, self.split, case)
        if case.mine:
            if not writer.plain or "me" in writer.subjects or any(writer.mentions(key) for key in case.keys):
                return None
        elif writer.mentions(about.key) and not any(about.key == each.about.key for each in self.told):
            return None
        if not all(apart(case, about, told.case, told.about) for told in writer.cases):
            return None
        if self.sloppy and rng.random() < 0.6:
            about = about.lower()
        made = Remarked(case, about)
        self.claim(made)
        self.told.append(made)
        return made

    def claim(self, made: Remarked) -> None:
        """Nothing else in the conversation may speak of the subject."""
        self.writer.subjects |= set(made.case.keys) if made.case.mine else {made.about.key}
        self.writer.mine = self.writer.mine or made.case.mine
        self.writer.cases.append(made)

    def value(self, kind: str) -> str:
        text = self.pool.value(self.rng, self.split, kind)
        return article(text.lower()) if self.sloppy and kind not in _EXACT and self.rng.random() < 0.6 else text

    def fill(self, of: Remarked, slots: list[str]) -> dict[str, str] | None:
        """New values for the slots, none of which contains another or the subject."""
        filled: dict[str, str] = {}
        others = [v.lower() for each in self.told for v in each.values.values()] + [
            each.about.text.lower() for each in self.told
        ]
        for slot in slots:
            for _ in range(6):
                made = self.value(of.case.slots[slot].kind)
                low = made.lower()
                if not any(low in other or other in low for other in others if len(other) > 1 or other == low):
                    filled[slot] = made
                    others.append(low)
                    break
            else:
                return None
        return filled

    # Statements

    def tell(self, of: Remarked) -> bool:
        """One or two statements of the case in a sentence."""
        rng, case = self.rng, of.case
        fresh = [s for s in case.tellable(self.wording) if not set(case.told_by(s)) & of.values.keys()]
        if not fresh:
            return False
        forms = [pick(rng, fresh)]
        more = [s for s in fresh if not set(case.told_by(s)) & set(case.told_by(forms[0]))]
        if more and rng.random() < 0.15:
            forms.append(pick(rng, more))
        filled = self.fill(of, [slot for form in forms for slot in case.told_by(form)])
        if filled is None:
            return False
        asked = [slot for form in forms for slot in case.asked(form, self.wording)]
        of.values |= {slot: filled[slot] for slot in asked}
        clauses = [self.said(form, {**of.about.fields, **filled}) for form in forms]
        if not self.state([(of, slot) for slot in asked], clauses):
            for slot in asked:
                del of.values[slot]
            return False
        return True

    def said(self, form: str, fields: dict[str, str]) -> str:
        """A form as it is typed, perhaps without capitals and apostrophes. Values stay as they are."""
        if self.sloppy:
            form = re.sub(r"[\w{}]+'\w+", lambda m: _SLOPPY.get(m[0].lower(), m[0]), form)
            form = re.sub(r"\bI\b", "i", form)
        return self.pool.said(form, fields)

    def state(self, told: list[tuple[Remarked, str]], clauses: list[str]) -> bool:
        """Say clauses as one sentence, perhaps with an opener and an end; they tell these slots."""
        rng = self.rng
        sentence, style = clauses[0], rng.random()
        for clause in clauses[1:]:
            sentence += self.frame("joins") + clause
        if style < 0.22:
            lead = self.frame("leads")
            asks = lead.startswith(("can you", "could you", "would you", "did I", "did you")) and "?" not in lead
            sentence = lead + sentence + ("?" if asks and rng.random() < 0.8 else "")
        elif style < 0.28:
            sentence = self.frame("reasons") + sentence
        elif style < 0.36:
            sentence = sentence + self.frame("tails")
        facts = self.facts(told, sentence)
        if not facts or not all(self.writer.free(fact) for fact in facts):
            return False
        self.say(sentence if self.sloppy else capital(sentence), [(fact, "") for fact in facts])
        self.last = told[0] if len(told) == 1 else None
        return True

    def facts(self, told: list[tuple[Remarked, str]], sentence: str) -> list[Fact]:
        facts = []
        for of, slot in told:
            phrase = Phrase(of.about.text, of.about.key, "story", 1 if of.case.mine else 3)
            question = of.question(slot, self.wording)
            if question.direct:
                facts.append(Fact(capital(sentence), [question], phrase, None, [], "", "topic remark"))
        return facts

    def parallel(self, one: Remarked, other: Remarked) -> bool:
        """One sentence about two subjects of the same case: "Aunt Becky brings salad and Ray brings drinks"."""
        rng, case = self.rng, one.case
        forms = [s for s in case.tellable(self.wording) if len(case.told_by(s)) == 1]
        if not forms:
            return False
        form = pick(rng, forms)
        slot = case.told_by(form)[0]
        second = form if rng.random() < 0.6 else pick(rng, [f for f in forms if case.told_by(f) == [slot]])
        clauses = []
        for each, said in ((one, form), (other, second)):
            filled = self.fill(each, [slot])
            if filled is None:
                one.values.clear()
                return False
            each.values |= filled
            clauses.append(self.said(said, {**each.about.fields, **filled}))
        if not self.state([(one, slot), (other, slot)], clauses):
            one.values.clear()
            other.values.clear()
            return False
        return True
