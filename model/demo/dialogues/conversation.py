"""Whole conversations: facts are stated, changed and asked for, between other text; thoughts of two steps; calls of functions."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from . import chains, changes, manners, tools
from .phrases import capital
from .plain import hops, lookups, stories
from .refusals import refuse
from .splits import pick
from .statements import Statements
from .turns import QUOTE, REFUSAL, VALUE, WORDS, Call, Conversation, Known, Piece, Turn, yours
from .turns import answer as answer_of

SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful assistant with a long memory.", "You remember what the user tells you.", "Answer in one sentence.",
    "Answer from the conversation alone. Say so when you were not told.", "You are a friendly chatbot.", "Be concise.", "Today is Tuesday.",
)  # fmt: skip


# What a conversation can have: "base", which the shipped checkpoint was trained on; stories of people and things that change;
# questions of two steps in plain words; tables to look up by two keys, to compare and to count; hasty typing.
BASE = ("base",)
FAMILIES = (*BASE, "stories", "hops", "lookups", "typing")


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
        while (answer is manners.WHO and "name|you" in self.taken) or (self.box and tools.serves(self.box, text)):
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
        if rng.random() < 0.1 and (text := tools.outside(rng, self.split, self.box)):
            text = capital(text) if rng.random() < 0.6 else text
            return Turn(text, [(manners.NO_FUNCTION, REFUSAL)], "talk", "", [("", WORDS)] if thinks else None)
        several = tools.both(rng, self.split, function) if rng.random() < 0.25 else None
        if several is not None:
            text, given = several
        else:
            given = [tools.arguments(rng, self.split, function)]
            text = tools.request(rng, function, given[0])
        results = [tools.result(rng, self.split, function) for _ in given]
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


_PLAYS = (("stories", stories.play), ("stories", stories.play), ("hops", hops.play), ("lookups", lookups.play))


def _stories(writer: Writer, families: Sequence[str], length: int) -> float:
    """How much of the conversation is of the families beside the first; what they play, and whether they alone state facts."""
    rng, plays = writer.rng, [play for family, play in _PLAYS if family in families]
    if set(families) == set(BASE):
        return 0.0
    writer.strict = True
    writer.hasty = "typing" in families and rng.random() < 0.3
    if not plays or ("base" in families and rng.random() < 0.25):
        return 0.0
    writer.plays = plays
    writer.plain = "base" not in families or rng.random() < 0.6
    # In long texts most questions are asked at the end, for facts anywhere; some texts have few facts among much else.
    writer.asks_at_once = min(1.0, 8000 / length)
    if length > 20000:
        return pick(rng, (0.5, 0.25, 0.1, 0.04))
    return pick(rng, (0.95, 0.8, 0.5, 0.25)) if writer.plain else pick(rng, (0.5, 0.25, 0.1))


_OVERHEAD = 130  # approximate characters of a question and its answer


def write(
    seed, *, length: int, split: str = "test", wording: str | None = None, questions: int | None = None, density: float | None = None,
    unanswerable: float = 0.1, prefer_updated: float = 0.35, thinking: float = 0.2, functions: float = 0.12,
    families: Sequence[str] = BASE,
) -> Conversation:  # fmt: skip
    """A conversation of about `length` characters, which depends only on the arguments.

    split: of names and values. wording: split of sentence frames and question forms; None: the same. questions: their number; half
    of them follow all statements. density: fraction of statements among the user's sentences; None: random, from 0.15 to 1.
    unanswerable: fraction of questions about facts that were not stated. prefer_updated: probability of asking for a changed
    fact, if any. thinking: fraction of turns answered after a thought. functions: probability that the conversation has functions.
    families: what may occur, of `FAMILIES`; a checkpoint can be expected to know those that it was trained on.
    """
    if unknown := set(families) - set(FAMILIES):
        raise ValueError(f"families is {sorted(unknown)}; expected some of {list(FAMILIES)}")
    rng = random.Random(f"{seed} {length} {split} {wording}")
    writer = Writer(rng, split, wording or split, thinking)
    box = tools.toolbox(rng, split) if length > 2000 and rng.random() < functions else []
    writer.box = box
    share = _stories(writer, families, length)
    if questions is None:
        questions = max(3, min(40, int(length**0.5 / 6)))
    if density is None:
        density = 0.25 + 0.75 * rng.random()
    if box:
        length -= 1500 + sum(len(str(f.schema)) for f in box)
    body = max(length - questions * _OVERHEAD, length // 3)
    options: dict[str, Any] = {"unanswerable": unanswerable, "prefer_updated": prefer_updated}
    asked_early = 0
    early = questions // 2 if length > 1200 else questions // 3
    while writer.length - asked_early * _OVERHEAD < body:
        if share and rng.random() < share:
            asked = pick(rng, writer.plays)(writer)
            asked_early += max(0, min(asked, early - asked_early))
            continue
        if rng.random() < 0.08:
            writer.append(writer.talk())
            continue
        if box and rng.random() < 0.5:
            writer.append(writer.use())
            continue
        left = body - (writer.length - asked_early * _OVERHEAD)
        sentences = min(int(1 + rng.random() ** 2 * (8 if rng.random() < 0.7 else 60)), left // 60 + 1)
        dense = density if rng.random() < 0.9 and not writer.plain else 0.0
        text = writer.text(sentences, dense)
        due = asked_early < early and writer.known and rng.random() < 0.5
        if due and rng.random() < 0.4:
            writer.append(writer.ask(text, **options))
            asked_early += 1
            continue
        long = len(text) > 900 or dense == 0.0
        writer.append(
            Turn(
                text,
                [(manners.READ if long else manners.NOTED, WORDS)],
                thought=[("", WORDS)] if rng.random() < thinking else None,
            )
        )
        progress = writer.length / length
        while asked_early < early * progress and writer.known and rng.random() < 0.8:
            writer.append(writer.ask(**options))
            asked_early += 1
    for _ in range(5 if writer.plain and not writer.known else 0):
        pick(rng, writer.plays)(writer)
    for _ in range(questions - asked_early):
        writer.append(
            writer.use()
            if box and rng.random() < 0.3
            else writer.ask(**options)
            if rng.random() < 0.93
            else writer.talk()
        )
    return Conversation(pick(rng, SYSTEMS) if rng.random() < 0.15 else "", writer.turns, box)
