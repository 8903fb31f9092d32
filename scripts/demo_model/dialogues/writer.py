"""Writes the turns of one conversation, and knows what it has said so far: questions with their answers, manners, functions."""

import re
from collections.abc import Sequence
from functools import lru_cache

from . import functions, manners
from .splits import pick
from .texts import LISTS
from .turns import QUOTE, REFUSAL, VALUE, WORDS, Call, Chain, Known, Piece, Question, Turn, yours
from .turns import answer as answer_of
from .typing import Typist, in_the_past
from .values import capital

_SMALL = frozenset(LISTS["small"])
_WORD = re.compile(r"[a-z]+|\d+")


@lru_cache(20_000)
def stems(text: str) -> frozenset[str]:
    """The words that carry a text's meaning, without their endings."""
    text = text.lower().replace("'s", "").replace("favorite", "favourite").replace("color", "colour")
    return frozenset(word[:5] for word in _WORD.findall(text) if word not in _SMALL)


@lru_cache(20_000)
def _words(key: str) -> frozenset[str]:
    return frozenset(key.split())


class Writer(Typist):
    """Lengths are in characters."""

    box: Sequence[functions.Function] = ()  # functions that can be called
    asks_at_once = 1.0  # fraction of the questions that follow what was told at once

    def __init__(self, rng, split: str, wording: str, thinking: float, hasty: bool = False):
        super().__init__(rng, wording, hasty)
        self.split, self.thinking = split, thinking
        self.turns: list[Turn] = []
        self.known: dict[str, Known] = {}  # by signature
        self.taken: dict[str, str] = {}  # every name of a question: the signature that owns it
        self.chains: list[Chain] = []
        self.missing: list[str] = []  # questions that a text could answer, and does not
        self.subjects: set[str] = set()  # keys of whom and what was told: nothing else may be said of them
        self.cases: list = []  # that were told, each with its subject
        self.earlier: list = []  # that can be come back to
        self.length = 0

    def thinks(self) -> bool:
        return self.rng.random() < self.thinking

    def free(self, question: Question) -> bool:
        """Whether no one can confuse it with a question for what was said."""
        return not any(name in self.taken for name in question.every_name)

    def mentions(self, key: str) -> bool:
        """Whether the user has written this, or what was told could be taken for it: "the car" for "my blue car"."""
        words = _words(key)
        if any(words <= _words(other) or _words(other) <= words for other in self.subjects):
            return True
        pattern = rf"\b{re.escape(key)}\b"
        return any(key in (lower := turn.user.lower()) and re.search(pattern, lower) for turn in self.turns)

    def learn(self, question: Question, sentence: str, where: tuple[int, int, int], said: str = "You said") -> None:
        if question.value not in sentence:  # the first word of a sentence is typed in either case
            shown = question.value[:1].swapcase() + question.value[1:]
            if shown not in sentence:
                return
            question.value = shown
        for name in question.every_name:
            self.taken.setdefault(name, question.signature)
        previous = self.known.get(question.signature)
        before = previous.question.value if previous and previous.question.value != question.value else ""
        at = self.length + where[2]
        self.known[question.signature] = Known(
            question, sentence, where, at, said, before, previous if before else None
        )

    def append(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.length += len(turn.user) + len(turn.assistant) + 16

    # Questions

    def phrased(self, question: Question) -> str:
        """One wording of a question, as people type it."""
        rng, style = self.rng, self.rng.random()
        if style < 0.15 and question.shorts:
            text = pick(rng, question.shorts)
            text = text.removeprefix("the ") if rng.random() < 0.6 else text
            return self.hurry(self.typed(text, "?" if rng.random() < 0.75 else "", 0.5))
        if style < 0.25 and question.nouns:
            text = self.frame("indirect").format(i=f"what {pick(rng, question.nouns)} is")
            return self.hurry(self.typed(text, pick(rng, ["?", "?", ".", ""]), 0.75))
        return self.question(pick(rng, question.asks))

    def ask(self, *, prefer_updated: float, unanswerable: float) -> Turn:
        """A turn with a question for something that was told before."""
        rng, ready = self.rng, self.ready()
        if ready and rng.random() < 0.5:
            return self.ask_chain(pick(rng, ready), "", self.thinks() or rng.random() < 0.6)
        if self.missing and rng.random() < unanswerable:
            return self.refusal(self.missing.pop(int(rng.random() * len(self.missing))))
        candidates = [k for k in self.known.values() if not k.asked] or list(self.known.values())
        if not candidates:
            return self.talk()
        updated = [k for k in candidates if k.old]
        return self.ask_for(pick(rng, updated if updated and rng.random() < prefer_updated else candidates))

    def ask_for(self, known: Known, before: str = "", asks: list[str] | None = None) -> Turn:
        """A turn with a question for it, or for what was before its change. asks: instead of the question's own ones."""
        rng, thinks = self.rng, self.thinks()
        if known.previous and rng.random() < 0.14 and (text := self._earlier(known)):
            return self._before(known, self.join(before, text), len(before), thinks)
        known.asked = True
        text = self.join(before, self.question(pick(rng, asks)) if asks else self.phrased(known.question))
        answer = answer_of(known)
        thought = [(f"{known.said}: ", WORDS), (known.sentence, QUOTE)] if thinks else None
        distance = self.length + len(before) - known.at
        return Turn(
            text, answer, "updated" if known.old else "stated", answer[0][0], thought, None, known.where, distance
        )

    def _earlier(self, known: Known) -> str | None:
        """A question for the value before the change."""
        rng, question = self.rng, known.question
        if question.nouns and rng.random() < 0.5:
            return self.question(self.frame("before_named").format(np=pick(rng, question.nouns)))
        past = in_the_past(pick(rng, question.asks))
        return self.question(self.frame("before").format(q=past)) if past else None

    def _before(self, known: Known, text: str, before: int, thinks: bool) -> Turn:
        first = known.previous
        assert first is not None
        pieces: list[Piece] = [
            (yours(first.question.value), VALUE),
            (f". {first.said}: ", WORDS),
            (first.sentence, QUOTE),
        ]
        pieces += [(" Now: ", WORDS), (yours(known.question.value), QUOTE), (".", WORDS)]
        thought = [(f"{first.said}: ", WORDS), (first.sentence, QUOTE)] if thinks else None
        return Turn(text, pieces, "stated", pieces[0][0], thought, None, first.where, self.length + before - first.at)

    def refusal(self, text: str, before: str = "") -> Turn:
        """The question, as people type it, for something that was not said."""
        thought: list[Piece] | None = [("Nothing was said about that.", REFUSAL)] if self.thinks() else None
        asked = self.join(before, self.question(text))
        return Turn(asked, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)

    # Two facts

    def ready(self) -> list[Chain]:
        """Chains whose two facts have been stated and have not changed since, and that have not been asked for."""
        return [
            chain
            for chain in self.chains
            if not chain.asked and self._stands(chain.first) and self._stands(chain.second)
        ]

    def _stands(self, fact: tuple[str, Question]) -> bool:
        known = self.known.get(fact[1].signature)
        return known is not None and known.question is fact[1] and not known.old

    def ask_chain(self, chain: Chain, before: str, thinks: bool) -> Turn:
        """The chain's question. Without a thought only its first step is answered."""
        chain.asked = thinks
        first, second = self.known[chain.first[1].signature], self.known[chain.second[1].signature]
        text = self.join(before, self.question(chain.question))
        if not thinks:
            value = yours(first.question.value)
            step = " is only the first step. You said: "
            answer: list[Piece] = [(value, VALUE), (step, WORDS), (first.sentence, QUOTE), (" Turn thinking on for the next one.", WORDS)]  # fmt: skip
            return Turn(text, answer, "two hops", value, None, None, first.where, 0)
        thought: list[Piece] = [
            ("First: ", WORDS),
            (first.sentence, QUOTE),
            (" Then: ", WORDS),
            (second.sentence, QUOTE),
        ]
        answer = answer_of(second)
        distance = self.length + len(before) - second.at
        return Turn(text, answer, "two hops", answer[0][0], thought, None, second.where, distance)

    def refuse_chain(self, chain: Chain, before: str) -> Turn:
        """The chain's question after a thought, when its second fact was not told."""
        text = self.join(before, self.question(chain.question))
        thought: list[Piece] = [("First: ", WORDS), (chain.first[0], QUOTE), (" Then: ", WORDS), ("nothing was said about that.", REFUSAL)]  # fmt: skip
        return Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)

    # Manners and functions

    def talk(self) -> Turn:
        text, answer, question = manners.talk(self.rng, self.split)
        while self.box and functions.serves(self.box, text):
            text, answer, question = manners.talk(self.rng, self.split)
        thought = [("", WORDS)] if self.thinks() else None
        if answer != manners.UNCLEAR:
            text = capital(text) if self.rng.random() < 0.55 else text
            text += pick(self.rng, ["?", "?", "?", ""]) if question else pick(self.rng, [".", "!", "", "", ""])
        return Turn(text, [(answer, REFUSAL)], "talk", "", thought)

    def use(self) -> Turn:
        """A request that one of the functions serves, its call, and the answer; now and then one that none of them serves."""
        rng = self.rng
        function, thinks = pick(rng, self.box), self.thinks()
        if rng.random() < 0.1 and (text := functions.outside(rng, self.split, self.box)):
            text = capital(text) if rng.random() < 0.6 else text
            return Turn(text, [(manners.NO_FUNCTION, REFUSAL)], "talk", "", [("", WORDS)] if thinks else None)
        several = functions.both(rng, self.split, function) if rng.random() < 0.25 else None
        if several is not None:
            text, given = several
        else:
            given = [functions.arguments(rng, self.split, function)]
            text = functions.request(rng, function, given[0])
        results = [functions.result(rng, self.split, function) for _ in given]
        answer: list[Piece] = [
            (" and ".join(value for _, value in results), VALUE), (". The function says: ", WORDS), (" and ".join(text for text, _ in results), QUOTE),
        ]  # fmt: skip
        calls = [(function.name, arguments) for arguments in given]
        call = Call(calls, [text for text, _ in results], answer, [("", WORDS)] if thinks else None)
        asks = text.startswith(("what", "how", "who", "where", "is ", "can "))
        typed = self.typed(text, "?" if asks else pick(rng, [".", "", "!"]), 0.7)
        # A typing error in an argument would make the call wrong.
        if any(leaf not in typed for arguments in given for leaf in functions.leaves(arguments)):
            typed = text
        return Turn(typed, [], "call", "", [("I call a function.", WORDS)] if thinks else None, call)
