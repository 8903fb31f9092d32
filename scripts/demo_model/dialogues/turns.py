"""What a conversation is made of: turns with their answers, and what is known of each fact."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .functions import Function

# What a part of an assistant's text is, for its weight in the loss.
WORDS, VALUE, QUOTE, REFUSAL, CALL = "words", "value", "quote", "refusal", "call"
Piece = tuple[str, str]  # (text, what it is)


@dataclass
class Call:
    """Calls of functions, their results, and what is answered then."""

    calls: list[tuple[str, dict[str, Any]]]
    results: list[str]
    answer: list[Piece]
    thought: list[Piece] | None = None  # of the answer

    def messages(self, thought: list[Piece] | None = None) -> list[dict[str, Any]]:
        """The message of the calls, before which comes this thought, and those of their results."""
        calls = [
            {"id": str(number), "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(self.calls)
        ]
        message = {"role": "assistant", "content": "", "tool_calls": calls} | _reasoning(thought)
        return [message] + [
            {"role": "tool", "tool_call_id": str(number), "content": result}
            for number, result in enumerate(self.results)
        ]


def _reasoning(thought: list[Piece] | None) -> dict[str, str]:
    text = "".join(part for part, _ in thought or ())
    return {"reasoning_content": text} if text else {}


@dataclass
class Turn:
    """What the user says and what is answered.

    kind: "stated", "updated", "unanswerable" or "two hops" for a question, by what was said of its fact; "compared" or "counted"
    for one about a table; "call" for a function call; "talk" otherwise. value: the right answer, at the beginning of its text.
    """

    user: str
    answer: list[Piece]
    kind: str = "talk"
    value: str = ""
    thought: list[Piece] | None = None  # None: the turn is answered without thinking
    call: Call | None = None
    # (turn, start, end): the sentence that holds the answer, in that turn's text.
    fact: tuple[int, int, int] | None = None
    distance: int = 0  # characters between that sentence and the question

    @property
    def assistant(self) -> str:
        return "".join(text for text, _ in self.answer)


@dataclass
class Conversation:
    system: str
    turns: list[Turn]
    functions: list[Function] = field(default_factory=list)

    def messages(self, until: int | None = None) -> list[dict[str, Any]]:
        """Messages of the chat API up to the question of turn `until` (without its answer), or all of them."""
        turns = self.turns if until is None else self.turns[: until + 1]
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        for number, turn in enumerate(turns):
            messages.append({"role": "user", "content": turn.user})
            if number == until:
                break
            answer, thought = turn.answer, turn.thought
            if turn.call is not None:
                messages += turn.call.messages(turn.thought)
                answer, thought = turn.call.answer, turn.call.thought
            text = "".join(part for part, _ in answer)
            messages.append({"role": "assistant", "content": text} | _reasoning(thought))
        return messages


@dataclass
class Question:
    """One thing that can be asked. asks: "where does Anna live"; nouns: "Anna's town"; shorts: what stands for a question.

    names: further signatures, of other questions that this value would answer as well.
    """

    signature: str
    value: str
    asks: list[str]
    nouns: list[str] = field(default_factory=list)
    shorts: list[str] = field(default_factory=list)
    names: tuple[str, ...] = ()

    @property
    def every_name(self) -> tuple[str, ...]:
        return (self.signature, *self.names)


@dataclass
class Known:
    """A question that can be asked, and the sentence that answers it."""

    question: Question
    sentence: str
    where: tuple[int, int, int]
    at: int  # characters from the beginning of the conversation
    said: str = "You said"
    old: str = ""  # the value before it was changed
    previous: "Known | None" = None  # what was known before the change
    asked: bool = False


@dataclass
class Chain:
    """Two facts, (sentence, question), the first of which names what the second is about, and the question that needs both."""

    first: tuple[str, Question]
    second: tuple[str, Question]
    question: str
    asked: bool = False

    @property
    def names(self) -> set[str]:
        return {*self.first[1].every_name, *self.second[1].every_name}


def yours(text: str) -> str:
    """A value as the assistant says it: "my dog" becomes "your dog"."""
    return re.sub(r"\b([Mm]y|[Oo]ur)\b", "your", re.sub(r"\bI\b", "you", re.sub(r"^(me|us)$", "you", text)))


def answer(known: Known) -> list[Piece]:
    value = known.question.value
    if value not in known.sentence:  # stated again, at the beginning of a sentence
        value = value[:1].swapcase() + value[1:]
    pieces: list[Piece] = [(yours(value), VALUE), (f". {known.said}: ", WORDS), (known.sentence, QUOTE)]
    if known.old and known.old != known.question.value:
        pieces += [(" Before: ", WORDS), (yours(known.old), QUOTE), (".", WORDS)]
    return pieces
