"""The shapes of a message, for the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class AnswerText(BaseModel):
    type: Literal["text"]
    text: str


class AnswerThinking(BaseModel):
    type: Literal["thinking"]
    thinking: str
    signature: str = Field(description="says nothing: clients want one")


class AnswerToolUse(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(description="its beginning, if the answer was cut")


class ThinkingTokens(BaseModel):
    thinking_tokens: int


class MessageUsage(BaseModel):
    input_tokens: int = Field(description="that were computed; the next two are the others")
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens


class Message(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerText | AnswerThinking | AnswerToolUse]
    stop_reason: Literal["end_turn", "max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(BaseModel):
    input_tokens: int
