"""What one conversation has said so far, and how its questions are typed."""

import re
from dataclasses import replace

from .clauses import Grammar
from .phrases import Fact, Question, capital
from .plain.hasty import hurried
from .splits import pick
from .turns import Chain, Known, Turn
from .wording import WORDINGS

_CONTRACTIONS = (
    *(
        ("what is ", "whats "),
        ("what's ", "whats "),
        ("where is ", "wheres "),
        ("where's ", "wheres "),
        ("who is ", "whos "),
    ),
    *(
        ("who's ", "whos "),
        ("when is ", "whens "),
        ("when's ", "whens "),
        ("how is ", "hows "),
        ("what are ", "what r "),
    ),
)
_TYPOS = "abcdefghijklmnopqrstuvwxyz"


class Memory:
    """Facts and questions of one conversation while it is generated. Lengths are in characters."""

    mistypes = 0.03  # fraction of questions with a wrong letter

    def __init__(self, rng, split: str, wording: str, thinking: float):
        self.rng, self.split, self.thinking = rng, split, thinking
        self.wording = WORDINGS[wording]
        self.grammar = Grammar(rng, split, self.wording)
        self.turns: list[Turn] = []
        self.known: dict[str, Known] = {}  # by signature
        self.taken: dict[str, str] = {}  # every signature and alias: the signature that owns it
        self.chains: list[Chain] = []
        self.pending: list[Fact] = []  # of chains, still to be stated, the next one last
        self.hurries = False  # whether they follow each other
        self.chained = 0.45 if rng.random() < 0.5 else 0.05  # probability that a chain begins
        self.latest: Fact | None = None  # of the sentence before, if it holds this fact alone
        self.missing: list[Question] = []  # what tables could say, and do not
        self.length = 0
        self.casual = rng.random() < 0.18  # types without capitals and full stops
        self.subjects: set[str] = set()  # keys of whom and what stories are about: nothing else may be said of them
        self.remarks: list = []  # that can be come back to
        self.cases: list = []  # of remarks, each with its subject
        self.mine = False  # a remark tells something of the user
        self.plain = False  # stories alone state facts
        self.hasty = False  # abbreviates, and mistypes more
        self.strict = False  # refuses no question whose words one sentence has

    def free(self, fact: Fact) -> bool:
        """Whether nobody can confuse the fact's questions with those of what was said."""
        if any(name in self.taken for q in fact.questions for name in (q.signature, *q.aliases)):
            return False
        return not self.subjects or fact.frame.startswith("topic ") or not self.names_subject(fact.sentence)

    def names_subject(self, text: str) -> bool:
        """Whether the text speaks of somebody or something that a story is about."""
        lower = text.lower()
        return any(key in lower and re.search(rf"\b{re.escape(key)}\b", lower) for key in self.subjects)

    def mentions(self, key: str) -> bool:
        """Whether the user has written this, or a story's subject could be taken for it: "the car" for "my blue car"."""
        words = set(key.split())
        if any(words <= (others := set(other.split())) or others <= words for other in self.subjects):
            return True
        return any(
            key in (lower := turn.user.lower()) and re.search(rf"\b{re.escape(key)}\b", lower) for turn in self.turns
        )

    def new_fact(self) -> Fact:
        """A fact whose questions nobody can confuse with those of another one."""
        for _ in range(30):
            fact = self.related() if self.known and self.rng.random() < 0.4 else self.grammar.fact()
            if fact is not None and self.free(fact):
                return fact
        return self.grammar.attribute()

    def related(self) -> Fact | None:
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

    def learn(self, fact: Fact, sentence: str, where: tuple[int, int, int], old: str, said: str = "You said") -> None:
        for question in fact.questions:
            if question.value not in sentence:  # the first word of a sentence is typed in either case
                first = question.value[:1]
                shown = (first.upper() if first.islower() else first.lower()) + question.value[1:]
                if shown not in sentence:
                    continue
                question = replace(question, value=shown)
            for name in (question.signature, *question.aliases):
                self.taken.setdefault(name, question.signature)
            previous = self.known.get(question.signature)
            before = previous.question.value if previous and previous.question.value != question.value else ""
            self.known[question.signature] = Known(
                question, sentence, where, self.length + where[2], said, fact, before, previous if before else None
            )

    # How questions are typed

    def phrase_question(self, question: Question) -> str:
        """One wording of a question, as people type it."""
        text = self._phrased(question)
        return hurried(self.rng, text) if self.hasty and self.rng.random() < 0.4 else text

    def _phrased(self, question: Question) -> str:
        rng, style = self.rng, self.rng.random()
        if style < 0.17 and question.short:
            text = pick(rng, question.short)
            text = text.removeprefix("the ") if rng.random() < 0.6 else text
            return self.typed(text, "?" if rng.random() < 0.75 else "", 0.5)
        if style < 0.37 and question.indirect:
            text = pick(rng, self.wording.indirect).format(i=pick(rng, question.indirect))
            return self.typed(text, pick(rng, ["?", "?", ".", ""]), 0.75)
        if not question.direct:
            return self.typed(pick(rng, question.short), "?", 0.5)
        return self.typed_question(pick(rng, question.direct))

    def typed_question(self, text: str) -> str:
        rng = self.rng
        if rng.random() < 0.12:
            lead = pick(rng, self.wording.ask_leads)
            text = lead + text
        elif rng.random() < 0.1:
            text += pick(rng, self.wording.ask_tails)
        return self.typed(text, "?" if rng.random() < 0.85 else "", 0.8)

    def typed(self, text: str, end: str, capitals: float) -> str:
        rng = self.rng
        if rng.random() < (0.2 if self.casual else capitals):
            text = capital(text)
        elif self.casual or rng.random() < 0.2:
            text = text.lower() if rng.random() < 0.3 else text
        if rng.random() < (0.25 if self.casual else 0.04):
            for formal, short in _CONTRACTIONS:
                if text[: len(formal)].lower() == formal:
                    text = short + text[len(formal) :]
                    break
        if rng.random() < self.mistypes and len(text) > 12:
            at = 3 + int(rng.random() * (len(text) - 6))
            change = rng.random()
            if change < 0.4:
                text = text[:at] + text[at + 1 :]
            elif change < 0.7:
                text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
            else:
                text = text[:at] + pick(rng, _TYPOS) + text[at:]
        return text + (end if not text.endswith("?") else "")

    def join(self, before: str, question: str) -> str:
        if not before:
            return question
        if before[-1] in ".!?;" or before.endswith("\n"):
            return f"{before}{pick(self.rng, [' ', ' ', chr(10), chr(10) * 2])}{question}"
        return f"{before}{pick(self.rng, [chr(10), chr(10) * 2, '. ', ', ', ' - ', ' '])}{question}"
