"""What one piece of text adds to an answer."""

from dataclasses import dataclass

from .dsml import ToolCall


@dataclass(frozen=True)
class CallDelta:
    """What one piece of text added to the arguments of a call."""

    index: int  # of the call in the answer
    name: str | None  # of the function, with the first piece
    arguments: str


@dataclass(frozen=True)
class AnswerDelta:
    """What one piece of text added to an answer. All of them, joined in order, make the ``AssistantMessage``."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # that this piece has completed
    call_deltas: tuple[CallDelta, ...] = ()  # the same calls and unfinished ones, as they grow

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning_content or self.tool_calls or self.call_deltas)

    def __add__(self, other: "AnswerDelta") -> "AnswerDelta":
        deltas = self.call_deltas
        for delta in other.call_deltas:
            if deltas and deltas[-1].index == delta.index:
                last = deltas[-1]
                deltas = (*deltas[:-1], CallDelta(last.index, last.name, last.arguments + delta.arguments))
            else:
                deltas = (*deltas, delta)
        return AnswerDelta(
            self.content + other.content,
            self.reasoning_content + other.reasoning_content,
            self.tool_calls + other.tool_calls,
            deltas,
        )
