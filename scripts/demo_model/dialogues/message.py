"""The message being written: sentences that tell facts, and questions; what a case tells of one subject."""

import re
from dataclasses import dataclass, field

from . import manners
from .cases import Case, Subject
from .splits import pick
from .texts import LISTS
from .turns import WORDS, Known, Question, Turn
from .values import article
from .writer import Writer

_COMMON = frozenset(LISTS["starts"])


@dataclass(eq=False)
class Told:
    """One case about one subject, and the value of each slot that was told. genus: what {g} stands for."""

    case: Case
    about: Subject
    genus: str = ""
    values: dict[str, str] = field(default_factory=dict)

    def signature(self, slot: str) -> str:
        return f"{self.case.name} {slot}|{self.about.key}|{self.genus}"

    @property
    def fields(self) -> dict[str, str]:
        return self.about.fields | {"g": self.genus}

    def asks(self, slot: str, wording: str, fields: dict[str, str] | None = None) -> list[str]:
        """Its questions, but for those that another slot could be meant by."""
        known, forms = fields or self.fields, self.case.slots[slot].asks_of[wording]
        return [article(form.format_map(known)) for form in forms if not self.case.unclear(form, slot, self.values)]

    def question(self, slot: str, wording: str) -> Question:
        made, known = self.case.slots[slot], self.fields
        nouns = [noun.format_map(known) for noun in made.nouns]
        plain = [n for n in nouns if re.match(r"(the|my|our) (?!(person|one|place|thing)\b)", n) or "'s " in n]
        names = {re.sub(r" (the|my|our) ", " ", ask.format_map(known).lower()) for ask in made.asks}
        names |= {f"{noun.lower()}|remark" for noun in nouns}
        said = [] if made.kind in ("person", "firstname", "titled") else plain
        return Question(self.signature(slot), self.values.get(slot, ""), self.asks(slot, wording), said, plain, tuple(sorted(names)))  # fmt: skip


class Message:
    """The message being written, its facts and questions."""

    def __init__(self, writer: Writer):
        self.writer, self.rng, self.split, self.wording = writer, writer.rng, writer.split, writer.wording
        self.parts: list[str] = []
        self.asked = 0  # questions

    def say(self, sentence: str, facts: list[Question]) -> None:
        """Add a sentence to the message, and learn its facts."""
        rng, text = self.rng, sentence
        first = sentence.split(" ", 1)[0]
        if rng.random() < (0.75 if self.writer.casual else 0.15) and first.lower() in _COMMON:
            text = sentence[:1].lower() + sentence[1:]
        end = pick(rng, ["", "", ".", "\n"] if self.writer.casual else [".", ".", ".", ".", ".", ".", "!", ""])
        text += "" if text[-1] in "?!" and end in (".", "!") else end
        if self.parts:
            last = self.parts[-1]
            self.parts.append(
                "" if last.endswith("\n") else " " if last[-1] in ".!?" else pick(rng, [". ", "\n", ", "])
            )
        start = sum(map(len, self.parts))
        self.parts.append(text)
        text = text.rstrip()
        for question in facts:
            self.writer.learn(question, text, (len(self.writer.turns), start, start + len(text)))

    def send(self) -> None:
        """End the message; the answer notes it."""
        if self.parts:
            text, self.parts = "".join(self.parts).rstrip(), []
            thought = [("", WORDS)] if self.writer.thinks() else None
            self.writer.append(Turn(text, [(manners.NOTED, WORDS)], thought=thought))

    def before(self) -> str:
        """What stands before a question in its message."""
        if self.parts and self.rng.random() < 0.6:
            self.send()
        text, self.parts = "".join(self.parts).rstrip(), []
        return text

    def answered(self, known: Known, asks: list[str] | None = None) -> None:
        before = self.before()
        self.writer.append(self.writer.ask_for(known, before, asks))
        self.asked += 1

    def refused(self, text: str) -> None:
        before = self.before()
        self.writer.append(self.writer.refusal(text, before))
        self.asked += 1
