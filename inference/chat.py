"""Answers to conversations: completions and deltas whose text has been parsed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .completion import Completion, Delta
from .text.answer import AnswerDelta, AnswerParser, AssistantMessage, parse_assistant

Tools = Sequence[Mapping[str, Any]]  # functions in OpenAI's shape


@dataclass(frozen=True, repr=False)
class ChatCompletion(Completion):
    """The answer to a conversation; `text` is what the model wrote."""

    message: AssistantMessage = field(kw_only=True)  # its content, reasoning and calls


@dataclass(frozen=True)
class ChatDelta(Delta):
    """The part of a conversation's answer that one step added."""

    message: AnswerDelta = field(kw_only=True)  # to its content, reasoning and calls; `text` is what the model wrote
    completion: ChatCompletion | None = None


class ChatReader:
    """Reads the deltas of one answer."""

    def __init__(self, thinking: bool, tools: Tools | None) -> None:
        self._thinking, self._tools = thinking, tools
        self._parser = AnswerParser(thinking, tools)

    def read(self, delta: Delta) -> ChatDelta:
        """The delta with what it says."""
        message = self._parser.push(delta.text)
        values = _values(delta)
        if delta.completion is not None:
            message += self._parser.finish(delta.completion.is_cut)
            values["completion"] = chat_completion(delta.completion, self._thinking, self._tools)
        return ChatDelta(**values, message=message)

    def read_all(self, deltas: Iterator[Delta]) -> Iterator[ChatDelta]:
        """All deltas. Closing the iterator closes theirs."""
        for delta in deltas:
            yield self.read(delta)


def chat_completion(completion: Completion, thinking: bool, tools: Tools | None) -> ChatCompletion:
    message = parse_assistant(completion.text, thinking, tools, completion.is_cut)
    return ChatCompletion(**_values(completion), message=message)


def _values(record: Completion | Delta) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}
