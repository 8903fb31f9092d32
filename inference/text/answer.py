"""What the model answers: reasoning, content and function calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .answer_delta import AnswerDelta, CallDelta
from .answer_parser import AnswerParser
from .dsml import ToolCall
from .tokenizer import EOS
from .tool_schema import is_object

__all__ = ["AnswerDelta", "AnswerParser", "AssistantMessage", "CallDelta", "parse_assistant"]


@dataclass(frozen=True)
class AssistantMessage:
    """A whole answer. ``reasoning_content`` is None if thinking was off."""

    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """The answer in OpenAI's shape, to be appended to the conversation. A call that was cut in a value is left out."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if calls := [call for call in self.tool_calls if is_object(call.arguments)]:
            message["tool_calls"] = [
                {"id": f"call_{i}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for i, call in enumerate(calls)
            ]
        return message


def parse_assistant(
    text: str, thinking: bool = False, tools: Sequence[Mapping[str, Any]] | None = None
) -> AssistantMessage:
    """Parse a whole answer, as `AnswerParser` does. Never fails: text that does not follow the format is content."""
    parser = AnswerParser(thinking, tools)
    answer = parser.push(text.removesuffix(EOS)) + parser.finish()
    return AssistantMessage(answer.content, answer.reasoning_content if thinking else None, answer.tool_calls)
