"""The response object: what was asked for, the items of the answer, and how it ended."""

import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ....completion import Completion
from ....params import SamplingParams
from ....text.answer import AnswerDelta, CallDelta
from ..context import ApiContext, new_id
from .request import ResponseRequest


class Answer:
    """Makes the response objects of one request."""

    def __init__(self, context: ApiContext, body: ResponseRequest, params: SamplingParams, thinks: bool) -> None:
        self._reasoning_tokens = context.reasoning_tokens if thinks else None
        text, reasoning = body.text, body.reasoning
        wanted = (
            text.format.model_dump(by_alias=True, exclude_none=True)
            if text is not None and text.format is not None
            else None
        )
        choice = body.tool_choice or "auto"
        self._head: dict[str, Any] = {
            "id": new_id("resp").replace("-", "_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": context.model_name,
        }
        self._asked = {
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": reasoning.effort if reasoning is not None else None, "summary": None},
            "store": body.store is not False,
            "temperature": params.temperature,
            "text": {"format": wanted or {"type": "text"}},
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [{**tool.model_dump(), "strict": bool(tool.strict)} for tool in body.functions],
            "top_p": params.top_p,
            "truncation": "disabled",
            "user": body.user,
        }

    @property
    def id(self) -> str:
        return self._head["id"]

    def unfinished(self) -> dict[str, Any]:
        return self._response("in_progress", [])

    def failed(self, output: list[dict[str, Any]], message: str) -> dict[str, Any]:
        return self._response("failed", output, error={"code": "server_error", "message": message})

    def finished(self, output: list[dict[str, Any]], completion: Completion) -> dict[str, Any]:
        status, details = ("incomplete", {"reason": "max_output_tokens"}) if completion.is_cut else ("completed", None)
        return self._response(status, output, completion, incomplete_details=details)

    def _response(
        self, status: str, output: list[dict[str, Any]], completion: Completion | None = None, **ending: Any
    ) -> dict[str, Any]:
        ending = {"error": None, "incomplete_details": None, **ending}
        ending["completed_at"] = int(time.time()) if status == "completed" else None
        usage = None if completion is None else self._usage(completion)
        return {**self._head, "status": status, **ending, "output": output, "usage": usage, **self._asked}

    def _usage(self, completion: Completion) -> dict[str, Any]:
        usage = completion.usage
        reasoning = self._reasoning_tokens(completion) if self._reasoning_tokens is not None else 0
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }


Event = dict[str, Any]  # with its type; the sequence number is added where it is written

_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
_PART_TYPES = {"reasoning": "reasoning_text", "message": "output_text"}


class Output:
    """The items so far. Each is opened, grows and is done before the next one begins."""

    def __init__(self, most_calls: int | None = None) -> None:
        """most_calls: later ones are left out; None: any number."""
        self._most_calls = most_calls
        self.items: list[dict[str, Any]] = []
        self._is_open = False

    def push(self, parts: Iterable[AnswerDelta]) -> Iterator[Event]:
        """The events of what a piece of text has added, in the order of the text."""
        for part in parts:
            if part.reasoning_content:
                yield from self._add_text("reasoning", part.reasoning_content)
            if part.content:
                yield from self._add_text("message", part.content)
            for delta in part.call_deltas:
                yield from self._add_arguments(delta)

    def finish(self, is_cut: bool) -> Iterator[Event]:
        """The events of the end. is_cut: the answer has reached its most tokens."""
        yield from self._close("incomplete" if is_cut else "completed")

    def _add_text(self, kind: str, text: str) -> Iterator[Event]:
        if not self._is_open or self.items[-1]["type"] != kind:
            yield from self._close()
            role: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
            yield from self._open({"type": kind, **role, "content": []})
            part: dict[str, Any] = {"type": _PART_TYPES[kind], "text": ""}
            part |= {"annotations": [], "logprobs": []} if kind == "message" else {}
            yield self._event("response.content_part.added", content_index=0, part=part)
            self.items[-1]["content"].append(dict(part))
        self.items[-1]["content"][0]["text"] += text
        yield self._text_event("delta", delta=text)

    def _add_arguments(self, delta: CallDelta) -> Iterator[Event]:
        if self._most_calls is not None and delta.index >= self._most_calls:
            return
        if delta.name is not None:
            yield from self._close()
            call = {"name": delta.name, "call_id": f"call_{secrets.token_hex(12)}", "arguments": ""}
            yield from self._open({"type": "function_call", **call})
        self.items[-1]["arguments"] += delta.arguments
        yield self._event("response.function_call_arguments.delta", delta=delta.arguments)

    def _open(self, item: dict[str, Any]) -> Iterator[Event]:
        item = {"id": f"{_PREFIXES[item['type']]}_{secrets.token_hex(12)}", **item, "status": "in_progress"}
        self.items.append(item)
        self._is_open = True
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": _copy(item)}

    def _close(self, status: str = "completed") -> Iterator[Event]:
        if not self._is_open:
            return
        item, self._is_open = self.items[-1], False
        if item["type"] == "function_call":
            named = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **named)
        else:
            [part] = item["content"]
            yield self._text_event("done", text=part["text"])
            yield self._event("response.content_part.done", content_index=0, part=dict(part))
        item["status"] = status
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": _copy(item)}

    def _text_event(self, what: str, **fields: Any) -> Event:
        kind = self.items[-1]["type"]
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return self._event(f"response.{_PART_TYPES[kind]}.{what}", content_index=0, **fields, **logprobs)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """Copy the item, which goes on growing."""
    return {**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)
