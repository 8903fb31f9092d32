"""The model's output, parsed into reasoning, content and tool calls: whole, or as it streams."""

from dataclasses import dataclass
from typing import Any

from .detokenizer import StopStrings
from .dsml import CLOSE_CALLS, OPEN_CALLS, ToolCall, parse_calls
from .tokenizer import END_THINK, EOS

# The two line breaks before a block of calls belong to the format, not to the content. Models sometimes leave them out.
_OPENINGS = (f"\n\n{OPEN_CALLS}", f"\n{OPEN_CALLS}", OPEN_CALLS)


@dataclass(frozen=True)
class AnswerDelta:
    """What one piece of text added to an answer. All of them, joined in order, make the ``AssistantMessage``."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning_content or self.tool_calls)

    def __add__(self, other: "AnswerDelta") -> "AnswerDelta":
        return AnswerDelta(
            self.content + other.content,
            self.reasoning_content + other.reasoning_content,
            self.tool_calls + other.tool_calls,
        )


@dataclass(frozen=True)
class AssistantMessage:
    """A whole answer. ``reasoning_content`` is None if thinking was off."""

    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """The answer in OpenAI's shape, to be appended to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": f"call_{i}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for i, call in enumerate(self.tool_calls)
            ]
        return message


class AnswerParser:
    """Parses an answer while it streams.

    No part of a tag is ever returned as content: text that may become a tag is held back until that is decided. A block of
    calls is returned whole when it closes. A block that is malformed or never closes is returned as content, unchanged.
    """

    def __init__(self, thinking: bool):
        """``thinking``: the prompt ends in ``<think>``, so that the answer starts inside the reasoning."""
        self._state = "reasoning" if thinking else "content"
        self._scanner = StopStrings([END_THINK] if thinking else _OPENINGS)
        self._opening = ""
        self._block = ""

    def push(self, text: str) -> AnswerDelta:
        """The part of the answer that is certain once this text is known."""
        delta = AnswerDelta()
        while True:
            safe, tag = self._scanner.push(text)
            delta += self._add(safe)
            if tag is None:
                return delta
            text = self._scanner.rest
            delta += self._change_state(tag)

    def finish(self) -> AnswerDelta:
        """The part that was held back until the end of the answer."""
        delta = self._add(self._scanner.finish())
        if self._state == "calls":
            delta += AnswerDelta(content=self._opening + self._block)
        self._block = ""
        return delta

    def _add(self, text: str) -> AnswerDelta:
        if self._state == "reasoning":
            return AnswerDelta(reasoning_content=text)
        if self._state == "content":
            return AnswerDelta(content=text)
        self._block += text
        return AnswerDelta()

    def _change_state(self, tag: str) -> AnswerDelta:
        """Go on to the part of the answer that follows this tag."""
        delta = AnswerDelta()
        if self._state == "content":
            self._state, self._opening, self._block = "calls", tag, ""
            self._scanner = StopStrings([CLOSE_CALLS])
            return delta
        if self._state == "calls":
            calls = parse_calls(self._block)
            delta = AnswerDelta(tool_calls=calls) if calls else AnswerDelta(self._opening + self._block + tag)
        self._state, self._scanner = "content", StopStrings(_OPENINGS)
        return delta


def parse_assistant(text: str, thinking: bool = False) -> AssistantMessage:
    """Parse a whole answer. Never fails: text that does not follow the format is content."""
    parser = AnswerParser(thinking)
    answer = parser.push(text.removesuffix(EOS)) + parser.finish()
    return AssistantMessage(answer.content, answer.reasoning_content if thinking else None, answer.tool_calls)
