"""Writes turns: questions with their answers, manners, requests for functions."""

from collections.abc import Callable, Sequence

from . import calls, chains, changes, manners, tools
from .phrases import capital
from .refusals import refuse
from .splits import pick
from .statements import Statements
from .turns import QUOTE, REFUSAL, VALUE, WORDS, Call, Known, Piece, Turn, yours
from .turns import answer as answer_of


class Writer(Statements):
    """Writes turns: questions with their answers, manners, requests for functions."""

    box: Sequence[tools.Function] = ()  # functions that can be called
    asks_at_once = 1.0  # fraction of the questions of stories and tables that follow them at once
    plays: Sequence[Callable[["Writer"], int]] = ()  # what appends several turns; returns the number of its questions

    def ask(self, before: str = "", *, prefer_updated: float = 0.35, unanswerable: float = 0.1) -> Turn:
        """A turn with a question, after the text `before` if given."""
        rng = self.rng
        thinks = rng.random() < self.thinking
        if not self.known and not before:
            if self.plain:
                return self.talk()
            before = self.text(1, 1.0)
        elif self.pending and not before and rng.random() < 0.5:  # both steps and their question in one message
            before = self.text(min(len(self.pending), 5), 1.0)
        ready = chains.ready(self)
        if ready and rng.random() < 0.5:
            return chains.ask(self, pick(rng, ready), before, thinks or rng.random() < 0.6)
        if rng.random() < unanswerable or not self.known:
            return refuse(self, before, thinks) or self.talk()
        candidates = [k for k in self.known.values() if not k.asked] or list(self.known.values())
        updated = [k for k in candidates if k.old]
        known = pick(rng, updated if updated and rng.random() < prefer_updated else candidates)
        return self.ask_for(known, before, thinks)

    def ask_for(self, known: Known, before: str = "", thinks: bool | None = None) -> Turn:
        """A turn with a question for it, or for what was before its change."""
        rng = self.rng
        if thinks is None:
            thinks = rng.random() < self.thinking
        if known.previous and rng.random() < 0.16 and (text := self._earlier(known)):
            return self._before(known, self.join(before, text), len(before), thinks)
        known.asked = True
        text = self.join(before, self._renamed(known, self.phrase_question(known.question)))
        answer = answer_of(known)
        thought = [(f"{known.said}: ", WORDS), (known.sentence, QUOTE)] if thinks else None
        kind = "updated" if known.old else "stated"
        return Turn(text, answer, kind, answer[0][0], thought, None, known.where, self.length + len(before) - known.at)

    def _earlier(self, known: Known) -> str | None:
        """A question for the value before the change."""
        rng, question = self.rng, known.question
        if question.topics and rng.random() < 0.5:
            return self.typed_question(pick(rng, self.wording.before_named).format(np=pick(rng, question.topics)))
        past = changes.in_the_past(pick(rng, question.direct)) if question.direct else None
        return self.typed_question(pick(rng, self.wording.before).format(q=past)) if past else None

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
        distance = self.length + before - first.at
        return Turn(text, pieces, "stated", pieces[0][0], thought, None, first.where, distance)

    def _renamed(self, known: Known, text: str) -> str:
        """The question with the subject called otherwise, where nothing else could be meant: "the car" for "my old car"."""
        rng = self.rng
        if known.fact is None or known.fact.subject.kind == "story":
            return text
        if known.fact.subject.person == 1 or rng.random() > 0.22:
            return text
        name = known.fact.subject.text
        words = name.split()
        heads = [
            k.fact.subject.key.split()[-1]
            for k in self.known.values()
            if k.fact and k.fact.subject is not known.fact.subject and k.fact.subject.key != known.fact.subject.key
        ]
        if words[0] in ("my", "our", "the") and len(words) > 1:
            if len(words) > 2 and rng.random() < 0.5 and words[-1] not in heads:
                other = f"{pick(rng, ['the', words[0]])} {words[-1]}"
            elif known.fact.subject.kind in ("thing", "event", "animal"):
                other = " ".join([pick(rng, ["the", "my", "our"]), *words[1:]])
            else:
                return text
        elif (
            known.fact.subject.kind == "person"
            and len(words) == 2
            and words[0][0].isupper()
            and "'" not in name
            and "." not in name
        ):
            if any(
                words[0].lower() in k.question.signature
                for k in self.known.values()
                if k.fact and k.fact.subject.key != known.fact.subject.key
            ):
                return text
            other = (
                words[0]
                if words[0] not in ("Dr", "Mr", "Mrs", "Ms", "Professor", "Captain", "Uncle", "Aunt", "Doctor")
                else name
            )
        else:
            return text
        return text.replace(name, other)

    def talk(self) -> Turn:
        text, answer, question = manners.talk(self.rng, self.split)
        while (answer is manners.WHO and "name|you" in self.taken) or (self.box and calls.serves(self.box, text)):
            text, answer, question = manners.talk(self.rng, self.split)
        thought = [("", WORDS)] if self.rng.random() < self.thinking else None
        text = capital(text) if self.rng.random() < 0.55 else text
        text += pick(self.rng, ["?", "?", "?", ""]) if question else pick(self.rng, [".", "!", "", "", ""])
        return Turn(text, [(answer, REFUSAL)], "talk", "", thought)

    def append(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.length += len(turn.user) + len(turn.assistant) + 16

    # Functions -------------------------------------------------------------------------------------------------------

    def use(self) -> Turn:
        """A request that one of the functions serves, its call, and the answer; now and then one that none of them serves."""
        rng = self.rng
        function = pick(rng, self.box)
        thinks = rng.random() < self.thinking
        if rng.random() < 0.1 and (text := calls.outside(rng, self.split, self.box)):
            text = capital(text) if rng.random() < 0.6 else text
            return Turn(text, [(manners.NO_FUNCTION, REFUSAL)], "talk", "", [("", WORDS)] if thinks else None)
        several = calls.both(rng, self.split, function) if rng.random() < 0.25 else None
        if several is not None:
            text, given = several
        else:
            given = [calls.arguments(rng, self.split, function)]
            text = calls.request(rng, function, given[0])
        results = [calls.result(rng, self.split, function) for _ in given]
        answer: list[Piece] = [
            (" and ".join(value for _, value in results), VALUE),
            (". The function says: ", WORDS),
            (" and ".join(text for text, _ in results), QUOTE),
        ]
        call = Call(
            [(function.name, arguments) for arguments in given],
            [text for text, _ in results],
            answer,
            [("", WORDS)] if thinks else None,
        )
        asks = text.startswith(("what", "how", "who", "where", "is ", "can "))
        typed = self.typed(text, "?" if asks else pick(rng, [".", "", "!"]), 0.7)
        # A typing error in an argument would make the call wrong.
        if any(leaf not in typed for arguments in given for leaf in tools.leaves(arguments)):
            typed = text
        return Turn(typed, [], "call", "", [("I call a function.", WORDS)] if thinks else None, call)
