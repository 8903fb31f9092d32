"""From a request to /v1/responses to the chat request that means the same."""

from typing import Any

from ..protocol import ChatRequest
from .request import (
    Content,
    FunctionCallItem,
    FunctionCallOutput,
    Item,
    Message,
    NamedFunction,
    ReasoningItem,
    ResponseRequest,
)


def chat_request(body: ResponseRequest, items: list[Item]) -> ChatRequest:
    """The chat request with the same meaning. items: of the whole conversation, without references."""
    given: dict[str, Any] = {
        "messages": _messages(body.instructions, items),
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "max_completion_tokens": body.max_output_tokens,
        "response_format": _response_format(body),
    }
    if body.tools:
        given["tools"] = [{"type": "function", "function": _function(tool.model_dump())} for tool in body.tools]
    if isinstance(choice := body.tool_choice, NamedFunction):
        given["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice is not None:
        given["tool_choice"] = choice
    same = ("model", "temperature", "top_p", "top_k", "min_p", "seed", "stream")
    return ChatRequest.model_validate({**given, **{name: getattr(body, name) for name in same}})


def _messages(instructions: str | None, items: list[Item]) -> list[dict[str, Any]]:
    """The items as turns. Reasoning, text and calls in a row are one turn of the assistant, as the model wrote them."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    for item in items:
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
    return messages


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
