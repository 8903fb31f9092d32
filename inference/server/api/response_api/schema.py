"""The shapes of a response, for the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

Status = Literal["in_progress", "completed", "incomplete"]


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(BaseModel):
    id: str
    type: Literal["reasoning"]
    summary: list[None] = Field(description="empty: the reasoning itself is the content")
    content: list[ReasoningText]
    status: Status


class OutputText(BaseModel):
    type: Literal["output_text"]
    text: str
    annotations: list[None]
    logprobs: list[None]


class OutputMessage(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]
    status: Status


class OutputFunctionCall(BaseModel):
    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = Field(description="a JSON object, as text; its beginning if the status is incomplete")
    status: Status


class ResponseError(BaseModel):
    code: str
    message: str


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class InputTokensDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class AskedReasoning(BaseModel):
    effort: str | None
    summary: str | None


class ResponseObject(BaseModel):
    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    completed_at: int | None
    output: list[OutputReasoning | OutputMessage | OutputFunctionCall]
    usage: ResponseUsage | None
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: AskedReasoning
    store: bool
    temperature: float
    text: dict[str, Any] = Field(description="as it was asked for")
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]
    user: str | None


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]
