"""The requests of clients: OpenAI's, with a bound on every number, and a few more fields with vLLM's names.

A field that does not change the text of an answer is accepted. One that would, but is not served, is an error, and so is a field
of no schema. Inside of messages and tools, where clients send back what they were sent, unknown fields are ignored.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from ...text.messages import starts_thinking
from ...text.schemas import schema_fault
from .errors import BAD_SCHEMA, invalid
from .fields import (
    MAX_TOKENS,
    Body,
    Integer,
    JsonObject,
    SamplingFields,
    Strict,
    Text,
    TokenIds,
    Whole,
)

FUNCTION_NAME = r"^[a-zA-Z0-9_.-]{1,128}$"


def _schema(parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Refuse a value that is not a JSON schema of objects. `check_function` checks functions whose calls must keep it."""
    kinds = parameters.get("type", "object")
    if (reason := schema_fault(parameters)) or "object" not in kinds:
        reason = reason or f"type is {kinds}"
        message = f"of {info.data.get('name')!r} cannot be compiled: {reason}; expected a JSON schema of objects"
        raise PydanticCustomError(BAD_SCHEMA, "{message}", {"message": message})
    return parameters


def count_characters(value: Any) -> int:
    """Characters of all texts in a value."""
    count, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, BaseModel):
            values += value.__dict__.values()
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value
    return count


# A call in the history may name a function that is not in tools. The limit is that of an answer's mark.
CalledName = Annotated[str, Field(min_length=1, max_length=1024)]
ParametersSchema = Annotated[JsonObject, AfterValidator(_schema)]
Verbosity = Literal["low", "medium", "high"]


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class FunctionCall(Strict):
    name: CalledName
    arguments: Text = Field(description="a JSON object, as text")


class RequestToolCall(Strict):
    id: Text | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    reasoning_content: Text | None = Field(None, description="the reasoning of an assistant turn")
    reasoning: Text | None = Field(None, description="vLLM's name of reasoning_content")
    tool_calls: Annotated[list[RequestToolCall], Field(fail_fast=True, max_length=128)] | None = None
    tool_call_id: Text | None = None
    function_call: JsonObject | None = Field(None, description="not served; use tool_calls")
    prefix: bool | None = Field(None, description="in the last message, an assistant's: the answer continues it")

    @model_validator(mode="after")
    def _one_reasoning(self) -> "ChatMessage":
        self.reasoning_content = self.reasoning_content or self.reasoning
        return self


class FunctionName(Strict):
    name: str = Field(pattern=FUNCTION_NAME)


class Function(FunctionName):
    # The model reads them in this order.
    description: Text | None = None
    parameters: ParametersSchema | None = Field(None, description="a JSON schema")
    strict: bool | None = Field(
        None, description="its calls keep the schema, also if the model decides whether to call; off by default"
    )


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedTool(Strict):
    """The function that the answer must call."""

    type: Literal["function"]
    function: FunctionName


class ChatTemplateKwargs(Whole):
    thinking: bool | None = Field(None, description="think before answering; off by default")
    enable_thinking: bool | None = Field(None, description="another name of thinking")


class Thinking(Whole):
    """DeepSeek's field for whether the model thinks first."""

    type: Literal["enabled", "disabled"]

    @model_validator(mode="before")
    @classmethod
    def _is_object(cls, value: Any) -> Any:
        if not isinstance(value, dict | Thinking):
            raise PydanticCustomError("object", 'Input should be {"type": "enabled"} or {"type": "disabled"}')
        return value


class ConversationFields(Body):
    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=4096)]
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=128)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = Field(
        "auto", description="with required, or a function, the answer is a call that keeps the function's schema"
    )
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call")
    chat_template_kwargs: ChatTemplateKwargs | None = None
    thinking_: Thinking | None = Field(None, alias="thinking")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="none: no thinking; all others: thinking"
    )
    add_generation_prompt: bool | None = Field(
        None, description="whether the answer begins a turn: false with continue_final_message, else true"
    )
    continue_final_message: bool | None = Field(
        None, description="the answer continues the last message, an assistant's"
    )

    @property
    def characters(self) -> int:
        return count_characters([self.messages, self.tools])

    @property
    def thinking(self) -> bool:
        """Off by default. If several fields are given, one that says yes decides."""
        template = self.chat_template_kwargs
        return (
            (template is not None and bool(template.thinking or template.enable_thinking))
            or (self.thinking_ is not None and self.thinking_.type == "enabled")
            or self.reasoning_effort not in (None, "none")
        )

    @property
    def continues(self) -> bool:
        """Whether the answer continues the last message."""
        return bool(self.continue_final_message or self.messages[-1].prefix)

    @property
    def starts_thinking(self) -> bool:
        """Whether the answer starts inside of its reasoning."""
        return starts_thinking(self.messages[-1].model_dump(), self.thinking, self.continues)

    @property
    def most_calls(self) -> int | None:
        """How many calls the answer may return; None: any number."""
        return 1 if self.parallel_tool_calls is False or isinstance(self.tool_choice, NamedTool) else None

    def plain_tools(self) -> list[dict[str, Any]] | None:
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]


class ChatRequest(ConversationFields, SamplingFields):
    max_completion_tokens: Integer | None = Field(None, ge=1, le=MAX_TOKENS, description="by default, as many as fit")
    max_tokens: Integer | None = Field(None, ge=1, le=MAX_TOKENS, description="older name of max_completion_tokens")
    logprobs: bool | None = False
    top_logprobs: Integer | None = Field(None, ge=0, le=20)
    functions: Annotated[list[JsonObject], Field(fail_fast=True, max_length=0)] | None = Field(
        None, description="not served; use tools"
    )
    function_call: Literal["none", "auto"] | None = Field(None, description="none or auto, without functions")
    modalities: list[Literal["text"]] | None = None
    prediction: JsonObject | None = Field(None, description="ignored: it changes only the speed of OpenAI's models")
    verbosity: Verbosity | None = Field(None, description="ignored, but for a warning: only medium is served")


def as_chat(given: dict[str, Any]) -> ChatRequest:
    """The chat request that another API's request becomes. Raises ApiError: one of its turns may be more than chat takes."""
    try:
        return ChatRequest.model_validate(given)
    except ValidationError as error:
        raise invalid(error.errors()) from None


class TokenizeRequest(Body):
    """Either a prompt or a conversation to encode."""

    model: Text | None = None
    prompt: Text | None = None
    add_special_tokens: bool | None = False
    parse_special_tokens: bool | None = Field(None, description="by default only of a prompt that is one control token")
    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=4096)] | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=128)] | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("expected either prompt or messages")
        return self

    @property
    def characters(self) -> int:
        return count_characters([self.prompt, self.messages, self.tools])


class DetokenizeRequest(Body):
    model: Text | None = None
    tokens: Annotated[TokenIds, Field(max_length=MAX_TOKENS)]
