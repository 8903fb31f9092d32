"""What the model wrote, taken apart: reasoning, content, function calls; at once or as it streams."""

from dataclasses import dataclass
from typing import Any

from .detokenizer import StopStrings
from .dsml import CLOSE_CALLS, OPEN_CALLS, ToolCall, parse_calls
from .tokenizer import END_THINK, EOS

# The two line breaks before a block belong to the format, not to the content; models forget them at times.
_OPENINGS = (f"\n\n{OPEN_CALLS}", f"\n{OPEN_CALLS}", OPEN_CALLS)


@dataclass(frozen=True)
class AnswerDelta:
    """What one more piece of text added; joined in order these make the ``AssistantMessage``."""

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
    """A whole answer. ``reasoning_content`` is None when the model was not asked to think."""

    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """The OpenAI shape, ready to be appended to the conversation."""
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
    """Takes an answer apart while it streams.

    Nothing of a tag is ever given away as content: what may become one is held until it is decided. A block of calls
    comes out whole when it closes; one that is malformed or never closes comes out as content, as it was written.
    """

    def __init__(self, thinking: bool):
        """``thinking``: the prompt ended in ``<think>``, so the answer starts inside the reasoning."""
        self._state = "reasoning" if thinking else "content"
        self._scanner = StopStrings([END_THINK] if thinking else _OPENINGS)
        self._opening = ""
        self._block = ""

    def push(self, text: str) -> AnswerDelta:
        """What this text makes certain."""
        delta = AnswerDelta()
        while True:
            safe, hit = self._scanner.push(text)
            delta += self._take(safe)
            if hit is None:
                return delta
            text = self._scanner.rest
            delta += self._turn(hit)

    def finish(self) -> AnswerDelta:
        """What was still held; the answer ends here."""
        delta = self._take(self._scanner.finish())
        if self._state == "calls":
            delta += AnswerDelta(content=self._opening + self._block)
        self._block = ""
        return delta

    def _take(self, text: str) -> AnswerDelta:
        if self._state == "reasoning":
            return AnswerDelta(reasoning_content=text)
        if self._state == "content":
            return AnswerDelta(content=text)
        self._block += text
        return AnswerDelta()

    def _turn(self, tag: str) -> AnswerDelta:
        """Passes from one part of the answer to the next."""
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
    """Takes a whole answer apart. Never fails: what does not follow the format is content."""
    parser = AnswerParser(thinking)
    answer = parser.push(text.removesuffix(EOS)) + parser.finish()
    return AssistantMessage(answer.content, answer.reasoning_content if thinking else None, answer.tool_calls)
