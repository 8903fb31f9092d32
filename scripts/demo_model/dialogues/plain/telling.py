"""What a story tells and asks, message by message; it notes what could be asked and was not told."""

import re
from dataclasses import dataclass, field, replace

from .. import manners
from ..phrases import Fact, Question
from ..splits import pick
from ..turns import WORDS, Known, Turn
from . import topics
from .topics import ME, Subject, Topic

_COMMON = frozenset(
    "the my our we you they there she he it it's she's he's they're two half moved feed actually sorry make better delayed postponed no".split()
)
_VAGUE = re.compile(r"^(where|how much|how old|how long|how heavy|who|when|how many)\b")


@dataclass
class Told:
    """One subject of a story, its attributes' values, and the facts that hold them."""

    topic: Topic
    about: Subject
    values: dict[str, str] = field(default_factory=dict)


class Telling:
    """Writes sentences, facts and questions of one story into a conversation. Counts its questions."""

    def __init__(self, writer):
        self.writer, self.rng, self.split = writer, writer.rng, writer.split
        self.wording = writer.wording.split
        self.told: list[Told] = []
        self.parts: list[str] = []  # of the message being written
        self.asked = 0
        self.near: set[str] = set()  # signatures of what was told last, if nothing else was said since

    # Messages

    def say(self, sentence: str, facts: list[tuple[Fact, str]]) -> None:
        """Add a sentence to the message, and learn its facts."""
        rng = self.rng
        text = sentence
        if rng.random() < (0.75 if self.writer.casual else 0.15) and sentence.split(" ", 1)[0].lower() in _COMMON:
            text = sentence[:1].lower() + sentence[1:]
        end = (
            rng.choice(["", "", ".", "\n"])
            if self.writer.casual
            else pick(rng, [".", ".", ".", ".", ".", ".", "!", ""])
        )
        text += "" if text[-1] in "?!" and end in (".", "!") else end
        if self.parts:
            last = self.parts[-1]
            self.parts.append(
                "" if last.endswith("\n") else " " if last[-1] in ".!?" else pick(rng, [". ", "\n", ", "])
            )
        start = sum(map(len, self.parts))
        self.parts.append(text)
        text = text.rstrip()
        for fact, old in facts:
            self.writer.learn(fact, text, (len(self.writer.turns), start, start + len(text)), old)

    def send(self) -> None:
        """End the message; the answer notes it."""
        if self.parts:
            text, self.parts = "".join(self.parts).rstrip(), []
            thought = [("", WORDS)] if self.rng.random() < self.writer.thinking else None
            self.writer.append(Turn(text, [(manners.NOTED, WORDS)], thought=thought))

    def ask(self, known: Known) -> None:
        """Ask for it, at the end of the message or in one of its own."""
        if self.parts and self.rng.random() < 0.6:
            self.send()
        before = "".join(self.parts).rstrip()
        self.parts = []
        self.writer.append(self.writer.ask_for(self._near(known, before), before))
        self.asked += 1

    def _near(self, known: Known, before: str) -> Known:
        """Now and then with a pronoun, where nobody else has been mentioned: "how old is she"."""
        told = self.told[-1]
        if (
            len(self.told) > 1
            or self.near != {known.question.signature}
            or told.about is ME
            or self.rng.random() > 0.15
        ):
            return known
        they, them, their, _ = topics.PRONOUNS[told.about.pronoun]
        forms = []
        for ask in known.question.direct:
            if _VAGUE.match(ask) and ask.count(told.about.text) == 1:
                own = told.about.text + ("'" if told.about.text.endswith("s") and they == "they" else "'s")
                if ask.endswith(" " + told.about.text):
                    forms.append(
                        ask[: -len(told.about.text)]
                        + (
                            they
                            if re.search(
                                r"\b(is|are|was|does|do|did)\b \S+$|(is|are|was) " + re.escape(told.about.text), ask
                            )
                            else them
                        )
                    )
                elif own in ask:
                    forms.append(ask.replace(own, their))
        if not forms:
            return known
        question = replace(known.question, direct=forms, indirect=[], short=[])
        return replace(known, question=question)

    # Facts

    def begin(self) -> bool:
        """Tell one or two statements about somebody or something that the conversation has not mentioned."""
        rng, writer = self.rng, self.writer
        for _ in range(8):
            topic = (
                topics.TOPICS["me"]
                if writer.plain and not writer.mine and rng.random() < 0.16
                else pick(rng, topics.BY_SPLIT[self.wording])
            )
            about = topics.subject(rng, self.split, topic)
            if (
                (about is ME and not writer.plain)
                or (about is not ME and writer.mentions(about.key))
                or not topic.statements[self.wording]
            ):
                continue
            told = Told(topic, about)
            self.told.append(told)
            if self._tell(told):
                for _ in range(1 + int(rng.random() * 2.2)):
                    if rng.random() < 0.5:
                        self._tell(told)
                writer.subjects.add(about.key)
                return True
            self.told.pop()
        return False

    def _tell(self, told: Told) -> bool:
        """State something of it that was not stated."""
        rng, topic = self.rng, told.topic
        fresh = [
            s
            for s in topic.statements[self.wording]
            if not set(topic.told_by(s)) & told.values.keys() and not _excluded(topic, s, told)
        ]
        if not fresh:
            return False
        values = dict(told.values)
        fact = topics.tell(rng, self.split, self.wording, topic, told.about, pick(rng, fresh), values)
        if not fact.questions or not self.writer.free(fact):
            return False
        told.values = values
        self.say(fact.sentence, [(fact, "")])
        self.near = {question.signature for question in fact.questions}
        self._note_untold(told)
        return True

    def _note_untold(self, told: Told) -> None:
        """What a question could ask for and nobody said: another attribute, and the same one of somebody else."""
        rng, topic, writer = self.rng, told.topic, self.writer
        for name in [*topic.attributes]:
            if name not in told.values and rng.random() < 0.2 and not _excludes(topic, name, told):
                self._missing(topics.question(topic, told.about, name, self.wording, {}))
        if told.about is not ME:
            other = topics.subject(rng, self.split, topic)
            if not writer.mentions(other.key) and other.key != told.about.key:
                self._missing(topics.question(topic, other, pick(rng, list(told.values)), self.wording, {}))
                writer.subjects.add(other.key)  # nothing will be said of it, nor of what could be taken for it

    def _missing(self, question: Question) -> None:
        if question.direct:
            self.writer.missing.append(replace(question, short=question.short[:1]))


def _excluded(topic: Topic, statement: str, told: Told) -> bool:
    return any(_excludes(topic, name, told) for name in topic.told_by(statement))


def _excludes(topic: Topic, name: str, told: Told) -> bool:
    """Places exclude each other: what has moved is no longer where it was."""
    places = (
        {"spot", "level", "place", "street", "address", "who", "buyer"}
        if topic.name in ("car", "thing", "flat", "parcel", "machine")
        else set()
    )
    return name in places and bool(places & told.values.keys())
