"""The requests of clients: OpenAI's, with a bound on every number, and a few more fields with vLLM's names.

Unknown fields are ignored, as most servers do. A known field that would change the answer but is not served is an error.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..params import MAX_LOGPROBS, MAX_SEED, MAX_STOP_STRINGS

MAX_CHOICES = 16
MAX_PROMPTS = 256
MAX_TOKENS = 2**20  # above the context length of every model
MAX_ID = 2**31 - 1
MAX_CHARACTERS = 2**23  # the default limit on the body is lower
MAX_DEPTH = 64  # of nested JSON
FUNCTION_NAME = r"^[a-zA-Z0-9_.-]{1,64}$"


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _all_whole(values: Any) -> Any:
    """`_whole` for the items of a list. A prompt may have 160,000 of them, nearly always integers, which need no call each."""
    if isinstance(values, list) and float in set(map(type, values)):
        return [_whole(value) for value in values]
    return values


def _shallow(value: Any) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return value
    raise ValueError(f"nested too deep; expected at most {MAX_DEPTH} levels")


def _characters(value: Any) -> int:
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


Integer = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]
# A list is read up to its first error: collecting the errors of a body of a million wrong items takes 17 s.
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=MAX_ID)]], Field(fail_fast=True), BeforeValidator(_all_whole)]
Prompt = Annotated[TokenIds, Field(min_length=1, max_length=MAX_TOKENS)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(_shallow)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(Strict):
    include_usage: bool | None = Field(False, description="end with a chunk that has the numbers of tokens")


class SamplingFields(Strict):
    """The fields that chat and plain completions share. Null means the default."""

    model: Text | None = Field(None, description="the model that /v1/models lists; the default")
    temperature: float | None = Field(1.0, ge=0, le=10, description="0 is greedy")
    top_p: float | None = Field(1.0, gt=0, le=1)
    top_k: Integer | None = Field(0, ge=-1, le=MAX_ID, description="0 or -1: all tokens")
    min_p: float | None = Field(0.0, ge=0, le=1)
    n: Integer | None = Field(1, ge=1, le=MAX_CHOICES)
    seed: Integer | None = Field(None, ge=-(2**63), le=MAX_SEED)
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[TokenIds, Field(max_length=MAX_STOP_STRINGS)] | None = None
    ignore_eos: bool | None = False
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    repetition_penalty: float | None = Field(1.0, ge=0.01, le=100)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: Text | None = Field(None, description="ignored")
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = Field(None, description="not served")


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class FunctionCall(Strict):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: Text = Field(description="a JSON object, as text")


class RequestToolCall(Strict):
    id: Text | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    reasoning_content: Text | None = Field(None, description="the reasoning of an assistant turn")
    tool_calls: Annotated[list[RequestToolCall], Field(fail_fast=True, max_length=128)] | None = None
    tool_call_id: Text | None = None


class Function(Strict):
    name: str = Field(pattern=FUNCTION_NAME)
    description: Text | None = None
    parameters: JsonObject | None = Field(None, description="a JSON schema")
    strict: bool | None = Field(None, description="ignored")


class Tool(Strict):
    type: Literal["function"]
    function: Function


class FunctionName(Strict):
    name: str = Field(pattern=FUNCTION_NAME)


class NamedTool(Strict):
    """The function that the answer must call."""

    type: Literal["function"]
    function: FunctionName


class ResponseFormat(Strict):
    type: Literal["text"]


class ChatTemplateKwargs(Strict):
    thinking: bool | None = Field(None, description="think before answering; off by default")
    enable_thinking: bool | None = Field(None, description="another name of thinking")

    @property
    def thinks(self) -> bool:
        return bool(self.thinking or self.enable_thinking)


class ConversationFields(Strict):
    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=4096)]
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=128)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = Field(
        "auto", description="with required, or a function, the server writes the beginning of the call for the model"
    )
    chat_template_kwargs: ChatTemplateKwargs | None = None

    @property
    def characters(self) -> int:
        return _characters([self.messages, self.tools])

    @property
    def thinking(self) -> bool:
        return self.chat_template_kwargs is not None and self.chat_template_kwargs.thinks

    def plain_tools(self) -> list[dict[str, Any]] | None:
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]


class ChatRequest(ConversationFields, SamplingFields):
    max_completion_tokens: Integer | None = Field(None, ge=1, le=MAX_TOKENS, description="by default, as many as fit")
    max_tokens: Integer | None = Field(None, ge=1, le=MAX_TOKENS, description="older name of max_completion_tokens")
    logprobs: bool | None = False
    top_logprobs: Integer | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    functions: Annotated[list[JsonObject], Field(fail_fast=True, max_length=0)] | None = Field(
        None, description="not served; use tools"
    )
    parallel_tool_calls: bool | None = Field(None, description="ignored")


class CompletionRequest(SamplingFields):
    prompt: (
        Text
        | Prompt
        | Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[Prompt], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS)]
    ) = Field(description="a text or a list of token ids, or a list of either")
    max_tokens: Integer | None = Field(16, ge=0, le=MAX_TOKENS, description="0 only with echo")
    logprobs: Integer | None = Field(None, ge=0, le=MAX_LOGPROBS)
    echo: bool | None = False
    best_of: Integer | None = Field(None, ge=1, le=MAX_CHOICES, description="n or nothing")
    suffix: Annotated[str, Field(max_length=0)] | None = Field(None, description="not served")
    add_special_tokens: bool | None = Field(False, description="put the beginning-of-sentence token before a text")
    parse_special_tokens: bool | None = Field(False, description="encode control tokens that a text spells as such")

    def prompts(self) -> list[str] | list[list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]  # type: ignore[list-item]
        return self.prompt  # type: ignore[return-value]


class TokenizeRequest(Strict):
    """Either a prompt or a conversation to encode."""

    prompt: Text | None = None
    add_special_tokens: bool | None = False
    parse_special_tokens: bool | None = False
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
        return _characters([self.prompt, self.messages, self.tools])


class DetokenizeRequest(Strict):
    tokens: Annotated[TokenIds, Field(max_length=MAX_TOKENS)]
