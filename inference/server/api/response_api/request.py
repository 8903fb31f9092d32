"""The fields of a request to /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from ..fields import (
    MAX_ID,
    MAX_TOKENS,
    IgnoredFields,
    Integer,
    JsonObject,
    Seed,
    Strict,
    Text,
    Whole,
    by_type,
)
from ..protocol import CalledName, ChatRequest, Function, FunctionName, Verbosity, as_chat

MAX_ITEMS = 4095  # which, with the instructions, are at most as many messages as a chat request has


def _refuse(value: bool) -> bool:
    if value:
        raise ValueError("this is not served; expected false")
    return value


# Literal[False] would accept 0, too.
No = Annotated[bool, AfterValidator(_refuse), Field(json_schema_extra={"const": False})]


class InputPart(Strict):
    type: Literal["input_text", "output_text"]
    text: Text


Content = Text | Annotated[list[InputPart], Field(fail_fast=True)]


class Message(Strict):
    """A turn of any role; an assistant's may be an item of an earlier response's output."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content


class FunctionCallItem(Strict):
    type: Literal["function_call"]
    call_id: Text
    name: CalledName
    arguments: Text = Field(description="a JSON object, as text")


class FunctionCallOutput(Strict):
    type: Literal["function_call_output"]
    call_id: Text
    output: Content


class ReasoningPart(Strict):
    type: Literal["reasoning_text"]
    text: Text


class ReasoningItem(Strict):
    """The reasoning before the assistant's next message or call. Its summary is no part of the conversation."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningPart], Field(fail_fast=True)] | None = None
    encrypted_content: Annotated[str, Field(max_length=0)] | None = Field(None, description="not served; send content")


class ItemReference(Strict):
    """An item of an earlier response's output."""

    type: Literal["item_reference"]
    id: Text


Item = Annotated[
    Annotated[Message, Tag("Message")]
    | Annotated[FunctionCallItem, Tag("FunctionCallItem")]
    | Annotated[FunctionCallOutput, Tag("FunctionCallOutput")]
    | Annotated[ReasoningItem, Tag("ReasoningItem")]
    | Annotated[ItemReference, Tag("ItemReference")],
    by_type(
        "item",
        {
            "message": "Message",
            "function_call": "FunctionCallItem",
            "function_call_output": "FunctionCallOutput",
            "reasoning": "ReasoningItem",
            "item_reference": "ItemReference",
        },
        default="message",
    ),
]


class FunctionTool(Function):
    type: Literal["function"]


def _no_function(kind: str) -> str:
    if kind == "function":
        raise ValueError("this is no function's type")
    return kind


class OtherTool(Strict):
    """A tool that OpenAI's servers run, or one in another format. It is skipped."""

    type: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$"), AfterValidator(_no_function)]


class NamedFunction(FunctionName):
    """The function that the answer must call."""

    type: Literal["function"]


class Format(Strict):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> "Format":
        if self.type == "json_schema" and self.schema_ is None:
            raise ValueError("type is 'json_schema'; expected schema with it")
        return self


class TextConfig(Whole):
    format: Format | None = None
    verbosity: Verbosity | None = Field(None, description="ignored")


class Reasoning(Whole):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="none, which is the default: no thinking; all others: thinking"
    )
    summary: Literal["auto", "concise", "detailed", "none"] | None = Field(
        None, description="no summary is written: the reasoning itself is in the answer"
    )


class StreamOptions(Whole):
    include_obfuscation: bool | None = Field(None, description="ignored: no event has it")


class ResponseRequest(IgnoredFields):
    input: Text | Annotated[list[Item], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)] = Field(
        description="a user's text, or the items of a conversation"
    )
    instructions: Text | None = Field(None, description="the system's message, before the input")
    tools: Annotated[list[FunctionTool | OtherTool], Field(fail_fast=True, max_length=128)] | None = None
    client_metadata: JsonObject | None = Field(None, description="ignored")
    tool_choice: Literal["auto", "none", "required"] | NamedFunction | None = Field(
        "auto", description="with required, or a function, the answer is a call that keeps the function's schema"
    )
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call")
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    max_output_tokens: Integer | None = Field(None, ge=1, le=MAX_TOKENS, description="by default, as many as fit")
    min_p: float | None = Field(None, ge=0, le=1, description="0 by default")
    seed: Seed | None = None
    stream_options: StreamOptions | None = None
    include: (
        list[
            Literal[
                "reasoning.encrypted_content",
                "web_search_call.action.sources",
                "web_search_call.results",
                "file_search_call.results",
                "code_interpreter_call.outputs",
                "message.input_image.image_url",
                "computer_call_output.output.image_url",
            ]
        ]
        | None
    ) = Field(None, description="ignored: the reasoning is in the answer as it is, and there are no other calls")
    max_tool_calls: Integer | None = Field(
        None, ge=1, le=MAX_ID, description="ignored: it counts calls of a server's own tools"
    )
    truncation: Literal["disabled"] | None = Field(None, description="disabled: an input that is too long is refused")
    store: bool | None = Field(
        None, description="false: no later request refers to this response; else it is kept in memory for a while"
    )
    background: No | None = None
    previous_response_id: Text | None = Field(
        None, description="of a response that is still kept: this input follows it"
    )
    conversation: Annotated[str, Field(max_length=0)] | None = Field(
        None, description="not served: use previous_response_id"
    )
    prompt: Annotated[list[None], Field(max_length=0)] | None = Field(
        None, description="not served: use instructions and input"
    )
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = Field(
        None, description="0; /v1/chat/completions has logprobs"
    )

    @property
    def functions(self) -> list[FunctionTool]:
        return [tool for tool in self.tools or () if isinstance(tool, FunctionTool)]


def chat_request(body: ResponseRequest, items: list[Item]) -> tuple[ChatRequest, list[int | None]]:
    """The chat request with the same meaning, and by message the index of its last item; None for the instructions.

    items: of the whole conversation, without references. Raises ApiError.
    """
    messages, sources = _messages(body.instructions, items)
    given: dict[str, Any] = {
        "messages": messages,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "max_completion_tokens": body.max_output_tokens,
        "response_format": _response_format(body),
    }
    if body.functions:
        given["tools"] = [{"type": "function", "function": _function(tool.model_dump())} for tool in body.functions]
    if isinstance(choice := body.tool_choice, NamedFunction):
        given["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice is not None:
        given["tool_choice"] = choice
    same = ("model", "temperature", "top_p", "top_k", "min_p", "seed", "stream")
    return as_chat({**given, **{name: getattr(body, name) for name in same}}), sources


def _messages(instructions: str | None, items: list[Item]) -> tuple[list[dict[str, Any]], list[int | None]]:
    """The items as turns. Reasoning, text and calls in a row are one turn of the assistant, as the model wrote them."""
    messages: list[dict[str, Any]] = []
    sources: list[int | None] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
        sources.append(None)
    for index, item in enumerate(items):
        if isinstance(item, FunctionCallOutput):
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
        elif isinstance(item, FunctionCallItem):
            turn = _assistant(messages, "tool_calls")
            function = {"name": item.name, "arguments": item.arguments}
            turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
        elif isinstance(item, ReasoningItem):
            turn = _assistant(messages, "reasoning_content")
            turn["reasoning_content"] = turn.get("reasoning_content", "") + "".join(
                part.text for part in item.content or ()
            )
        elif isinstance(item, Message) and item.role == "assistant":
            _assistant(messages, "content")["content"] = _text(item.content, between="")
        elif isinstance(item, Message):
            messages.append({"role": item.role, "content": _text(item.content)})
        sources[len(messages) - 1 :] = [index]
    return messages, sources


_ORDER = ("reasoning_content", "content", "tool_calls")  # of an assistant's turn


def _assistant(messages: list[dict[str, Any]], part: str) -> dict[str, Any]:
    """The assistant's turn to which this part belongs: the last message, unless it already has a part that comes later."""
    last = messages[-1] if messages else {}
    # A second text in a row is another turn; a second call, or more reasoning, is not.
    later = _ORDER[_ORDER.index(part) + (part != "content") :]
    if last.get("role") != "assistant" or not last.keys().isdisjoint(later):
        messages.append({"role": "assistant"})
    return messages[-1]


def _text(content: Content, between: str = "\n") -> str:
    return content if isinstance(content, str) else between.join(part.text for part in content)


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "type" and value is not None}


def _response_format(body: ResponseRequest) -> dict[str, Any] | None:
    wanted = body.text.format if body.text is not None else None
    if wanted is None:
        return None
    given = wanted.model_dump(by_alias=True, exclude_none=True)
    kind = given.pop("type")
    return {"type": kind, "json_schema": given} if kind == "json_schema" else {"type": kind}
