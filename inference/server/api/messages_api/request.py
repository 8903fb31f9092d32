"""The fields of a request to /v1/messages, and the chat request with the same meaning."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, Tag, model_validator

from ....params import MAX_STOP_STRINGS
from ..errors import ApiError
from ..fields import (
    MAX_TOKENS,
    Body,
    CommonFields,
    Integer,
    JsonObject,
    StopString,
    Strict,
    Text,
    Whole,
    by_type,
)
from ..protocol import FUNCTION_NAME, CalledName, ChatRequest, FunctionName, ParametersSchema, as_chat

# Claude Code puts this line, which differs from request to request, before its system prompt: no page could be reused.
_BILLING = "x-anthropic-billing-header:"

Part = TypeVar("Part")


class TextBlock(Strict):
    type: Literal["text"]
    text: Text


Texts = Text | Annotated[list[TextBlock], Field(fail_fast=True)]


class ThinkingBlock(Strict):
    """The reasoning of an earlier answer. Its signature is not checked."""

    type: Literal["thinking"]
    thinking: Text


class RedactedThinkingBlock(Strict):
    type: Literal["redacted_thinking"]  # another model's reasoning, which is left out


class ToolUseBlock(Strict):
    type: Literal["tool_use"]
    id: Text
    name: CalledName
    input: JsonObject


class ToolReference(Strict):
    type: Literal["tool_reference"]  # a tool that a search has found; all are shown to the model in any case
    tool_name: Text


class ToolResultBlock(Strict):
    type: Literal["tool_result"]
    tool_use_id: Text
    content: Text | Annotated[list[TextBlock | ToolReference], Field(fail_fast=True)] | None = None
    is_error: bool | None = Field(None, description="ignored: the content says what failed")

    @property
    def text(self) -> str:
        return "\n".join(
            part.text if isinstance(part, TextBlock) else part.tool_name for part in _blocks(self.content or [])
        )


Block = Annotated[
    Annotated[TextBlock, Tag("TextBlock")]
    | Annotated[ThinkingBlock, Tag("ThinkingBlock")]
    | Annotated[RedactedThinkingBlock, Tag("RedactedThinkingBlock")]
    | Annotated[ToolUseBlock, Tag("ToolUseBlock")]
    | Annotated[ToolResultBlock, Tag("ToolResultBlock")],
    by_type(
        "block",
        {
            "text": "TextBlock",
            "thinking": "ThinkingBlock",
            "redacted_thinking": "RedactedThinkingBlock",
            "tool_use": "ToolUseBlock",
            "tool_result": "ToolResultBlock",
        },
    ),
]


class Turn(Strict):
    role: Literal["user", "assistant", "system"]
    content: Text | Annotated[list[Block], Field(fail_fast=True)]


class CustomTool(FunctionName):
    """A function that the client runs."""

    type: Literal["custom"] | None = None
    description: Text | None = None
    input_schema: ParametersSchema
    strict: bool | None = Field(None, description="its calls keep the schema, also if the model decides to call")

    @property
    def function(self) -> dict[str, Any]:
        return {**self.model_dump(exclude={"type", "input_schema"}), "parameters": self.input_schema}


class OtherTool(Strict):
    """A tool of Anthropic's servers, or one whose schema only their models know. It is skipped."""

    type: str = Field(pattern=r"^[a-z0-9_]{1,64}_(20[0-9]{6}|toolset)$")


class ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: Annotated[str, Field(pattern=FUNCTION_NAME)] | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _has_name(self) -> "ToolChoice":
        if self.type == "tool" and self.name is None:
            raise ValueError("type is 'tool'; expected name with it")
        return self


class Thinking(Strict):
    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: Integer | None = Field(None, ge=0, le=MAX_TOKENS, description="ignored: max_tokens is the limit")
    display: Literal["summarized", "omitted"] | None = Field(None, description="ignored: the whole reasoning is shown")


class OutputFormat(Strict):
    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Whole):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(None, description="ignored")
    format: OutputFormat | None = None


class CountRequest(Body):
    """The conversation of a request. Fields that do not change the text of an answer are ignored."""

    model: Text | None = Field(None, description="the model that /v1/models lists; the default")
    messages: Annotated[list[Turn], Field(fail_fast=True, min_length=1, max_length=4096)]
    system: Texts | None = None
    tools: Annotated[list[CustomTool | OtherTool], Field(fail_fast=True, max_length=256)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(None, description="off by default; on unless its type is disabled")
    output_config: OutputConfig | None = None
    mcp_servers: Annotated[list[None], Field(max_length=0)] | None = Field(None, description="not served")
    thread: JsonObject | None = Field(None, description="not served, which clients understand: they send all messages")
    cache_control: JsonObject | None = Field(None, description="ignored, as the next ones are")
    billing_policy: JsonObject | None = None
    compaction: JsonObject | None = None
    context_management: JsonObject | None = None
    diagnostics: JsonObject | None = None
    speed: Text | None = None
    user_profile_id: Text | None = None


class MessagesRequest(CountRequest, CommonFields):
    max_tokens: Integer = Field(ge=1, le=MAX_TOKENS)
    stop_sequences: Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] | None = None
    metadata: JsonObject | None = Field(None, description="ignored, as the next ones are")
    service_tier: Text | None = None
    inference_geo: Text | None = None
    container: Text | JsonObject | None = None


def chat_request(body: CountRequest) -> tuple[ChatRequest, list[int]]:
    """The chat request with the same meaning, and by message the index of its last turn; -1: the system's. Raises ApiError."""
    if body.thread is not None:
        message = "thread is not served; expected all messages of the conversation"
        raise ApiError(400, message, "thread", "thread_unsupported_request")
    messages, sources = _messages(body)
    given: dict[str, Any] = {
        "messages": messages,
        "thinking": {"type": "enabled" if body.thinking and body.thinking.type != "disabled" else "disabled"},
    }
    tools = [tool for tool in body.tools or () if isinstance(tool, CustomTool)]
    if tools:
        given["tools"] = [{"type": "function", "function": tool.function} for tool in tools]
    if (choice := body.tool_choice) is not None:
        named = {"type": "function", "function": {"name": choice.name}}
        given["tool_choice"] = named if choice.type == "tool" else "required" if choice.type == "any" else choice.type
        given["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if body.output_config is not None and (form := body.output_config.format) is not None:
        given["response_format"] = {"type": "json_schema", "json_schema": {"schema": form.schema_}}
    if isinstance(body, MessagesRequest):
        same = ("model", "temperature", "top_p", "top_k", "stream", "max_tokens")
        given |= {name: getattr(body, name) for name in same} | {"stop": body.stop_sequences}
    return as_chat(given), sources


def _messages(body: CountRequest) -> tuple[list[dict[str, Any]], list[int]]:
    """The turns as chat has them: turns of one role in a row are one, and each result of a tool is a message."""
    system = [block for block in _blocks(body.system or []) if not block.text.startswith(_BILLING)]
    turns = [*([Turn(role="system", content=[*system])] if system else []), *body.messages]
    messages: list[dict[str, Any]] = []
    sources: list[int] = []
    for number, turn in enumerate(turns, len(body.messages) - len(turns)):
        blocks = _blocks(turn.content)
        for place, block in enumerate(blocks):
            if block.type not in _ALLOWED[turn.role]:
                name, allowed = f"messages.{number}.content.{place}", " or ".join(_ALLOWED[turn.role])
                raise ApiError(400, f"{name} is of type {block.type}; expected {allowed} of role {turn.role}", name)
        results = [block for block in blocks if isinstance(block, ToolResultBlock)]
        messages += [{"role": "tool", "tool_call_id": each.tool_use_id, "content": each.text} for each in results]
        rest = [block for block in blocks if not isinstance(block, ToolResultBlock)]
        if rest or not results:
            if not messages or messages[-1]["role"] != turn.role:
                messages.append({"role": turn.role, "content": []})
            for block in rest:
                _add(messages[-1], block)
        sources += [number] * (len(messages) - len(sources))
    if messages[-1]["role"] == "assistant":
        messages[-1]["prefix"] = True
    for message in messages:
        if message["role"] == "assistant":  # what the model wrote had no line breaks between two texts
            message["content"] = "".join(part["text"] for part in message["content"])
    return messages, sources


_ALLOWED = {
    "system": ("text",),
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def _add(message: dict[str, Any], block: Block) -> None:
    if isinstance(block, TextBlock):
        message["content"].append({"type": "text", "text": block.text})
    elif isinstance(block, ThinkingBlock):
        message["reasoning_content"] = message.get("reasoning_content", "") + block.thinking
    elif isinstance(block, ToolUseBlock):
        function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
        message.setdefault("tool_calls", []).append({"id": block.id, "type": "function", "function": function})


def _blocks(content: str | list[Part]) -> list[Part | TextBlock]:
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else [*content]
