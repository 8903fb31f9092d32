"""The shapes of the responses, for the OpenAPI document. The responses themselves are built as plain dicts, for speed."""

from typing import Literal

from pydantic import BaseModel, Field

# `itemSchema` is OpenAPI 3.2's; current tools accept it in 3.1 as well.
EVENTS = {
    "text/event-stream": {
        "itemSchema": {
            "type": "object",
            "required": ["data"],
            "properties": {
                "data": {
                    "type": "string",
                    "description": "the next chunk as JSON, or an error as JSON, which is the last before [DONE], or [DONE]",
                }
            },
        }
    }
}

ChatFinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    reasoning_tokens: int


class UsageBody(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = None  # of conversations


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None = Field(description="null for a token that is part of a character")


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[ChatLogprob]
    refusal: None


class AnswerFunction(BaseModel):
    name: str
    arguments: str


class AnswerToolCall(BaseModel):
    id: str
    type: Literal["function"]
    function: AnswerFunction


class AnswerMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[AnswerToolCall] | None = None


class PromptLogprob(BaseModel):
    logprob: float
    rank: int | None = Field(description="among all tokens, if it is one of the likeliest that were asked for")
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class SelectionOfToken(BaseModel):
    query_position: int = Field(
        description="of the token before the generated one, in the sequence of prompt and answer"
    )
    layers: dict[str, list[int]] = Field(description="by layer, the positions that were attended to, ascending")
    scores: dict[str, list[float]] = Field(
        description="of those, where the layer had more to choose from than it takes"
    )


class ChatChoice(BaseModel):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    selections: list[SelectionOfToken] | None = None  # with return_selections


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody
    prompt_logprobs: PromptLogprobs | None = None


class TextLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]
    stop_reason: str | int | None = Field(description="the stop string or token id that ended it")
    prompt_logprobs: PromptLogprobs | None = None
    selections: list[SelectionOfToken] | None = None  # with return_selections


class TextCompletion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str = Field(
        description="the checkpoint, under whatever name it is served: deepseek-v3.2-demo, or its directory's name"
    )
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]


class TokenizeResponse(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int


class TokenizerInfo(BaseModel):
    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: None
    model_max_length: int
    chat_template: str | None


class DetokenizeResponse(BaseModel):
    prompt: str


class Version(BaseModel):
    version: str


class Health(BaseModel):
    status: Literal["alive", "failed", "ready", "not ready"]
    running: int
    waiting: int
    seconds_since_step: float
