"""Questions of sketches: for what was told, and for what was not, which is refused.

Refused is a question for a role that nothing has told of this subject, or for a told role of a subject like it.
"""

import re

from .. import manners
from ..phrases import Question
from ..splits import FUNCTION_WORDS, pick
from ..turns import REFUSAL, Known, Turn
from .sketch_blocks import START, Sketched, draw_subject, fields
from .telling import Telling
from .topics import PRONOUNS, Subject


def _beside(asked: str, subject: str) -> set[str]:
    """The words of a question that carry meaning, beside its subject's."""
    said = set(re.findall(r"[a-z]+", subject.lower()))
    return {word for word in re.findall(r"[a-z]+", asked.lower()) if word not in _SMALL | said}


_SMALL = FUNCTION_WORDS | set("what's me my us our need needs get got s you know tell say look remember".split())


class SketchQuestions(Telling):
    """Asks about the subjects of one sketch."""

    drawn: list[Sketched]  # its subjects
    fresh = True  # whether nobody else was named since

    def untold(self, of: Sketched) -> Question | None:
        """A question that resembles what was told of it and has no answer."""
        rng, roles = self.rng, of.block.roles
        fresh = [name for name in roles if name not in of.values]
        if fresh and rng.random() < 0.72:
            role = pick(rng, fresh)
            question = of.question(role, self.wording)
            clash = {"day": "time", "time": "day"}.get(role)
            if clash in of.values:
                question.direct = [ask for ask in question.direct if not START.match(ask)]
        else:  # a told role of another subject
            about = draw_subject(rng, self.split, of.block)
            if rng.random() < 0.25 and of.about.text.split()[0] in ("the", "my", "our") and of.block.name != "person":
                determiner, noun = of.about.text.split(" ", 1)
                about = Subject(f"{determiner} {pick(rng, ['old', 'other', 'second', 'new'])} {noun}", of.about.pronoun)
            if self.writer.mentions(about.key) and " ".join(about.key.split()[1:]) != of.about.key:
                return None
            if any(about.key == each.about.key for each in self.drawn):
                return None
            question = of.question(pick(rng, list(of.values)), self.wording, about)
        return question if question.direct else None

    def refuse(self, of: Sketched) -> bool:
        question = self.untold(of)
        if question is None or question.signature in self.writer.taken:
            return False
        if self.rng.random() < 0.5:
            self.writer.missing.append(question)
        asked = self.worded(of, question)
        if not re.search(r"(?i)\b(how|who|whose|where|when|whom)", asked) and not _beside(asked, of.about.text):
            return False  # the subject alone: any sentence about it would do
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        thinks = self.rng.random() < self.writer.thinking
        thought = [("Nothing was said about that.", REFUSAL)] if thinks else None
        text = self.writer.join(before, asked)
        self.writer.append(Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought))
        self.fresh = self.fresh and question.signature.endswith(f"|{of.about.key}")  # nobody else was named
        self.asked += 1
        return True

    def worded(self, of: Sketched, question: Question) -> str:
        return self.writer.phrase_question(self.turned(of, question))

    def turned(self, of: Sketched, question: Question) -> Question:
        """Now and then with a pronoun, where one subject alone was told: "what time does it start"."""
        if len(self.drawn) > 1 or not self.fresh or self.rng.random() > 0.25 or of.about.text not in question.direct[0]:
            return question
        role = question.signature.split("|")[0].rsplit(" ", 1)[1]
        they, them, their, _ = PRONOUNS[of.about.pronoun]
        slots = {**fields(of.about), "e": they, "es": their}
        forms = [ask.format_map(slots) for ask in of.block.roles[role].asks_of[self.wording] if "{n}" not in ask]
        forms = [
            re.sub(rf"\b(to|for|with|into|at|on|in|reach|call|open) {they}\b", rf"\1 {them}", form) for form in forms
        ]
        forms = [form for form in forms if not ({"day", "time"} <= of.values.keys() and START.match(form))]
        clash = {"day": "time", "time": "day"}.get(role)
        forms = [form for form in forms if not (clash in of.values and START.match(form))]
        return Question(question.signature, question.value, forms or question.direct, [], [], [], question.aliases)

    def answered(self, of: Sketched, role: str) -> None:
        known = self.writer.known.get(of.signature(role))
        if known is None or not known.question.direct:
            return
        near = Known(**{**known.__dict__, "question": self.turned(of, known.question)}) if self.fresh else known
        known.asked = True
        self.ask_plain(near)

    def ask_plain(self, known: Known) -> None:
        if self.parts and self.rng.random() < 0.7:
            self.send()
        before, self.parts = "".join(self.parts).rstrip(), []
        self.writer.append(self.writer.ask_for(known, before))
        self.asked += 1
