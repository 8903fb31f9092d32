"""The response object and its events: what was asked for, the items of the answer, and how it ended."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ....completion import Completion
from ....params import SamplingParams
from ..blocks import Blocks, Event
from ..context import ApiContext, new_id
from ..errors import ApiError
from ..protocol import ChatRequest
from .request import ResponseRequest

_PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}
_PART_TYPES = {"reasoning": "reasoning_text", "message": "output_text"}


class Answer(Blocks):
    """The items so far, and the response around them."""

    KINDS = ("reasoning", "message", "function_call")

    def __init__(
        self,
        context: ApiContext,
        body: ResponseRequest,
        chat: ChatRequest,
        params: SamplingParams,
        keep: Callable[[dict[str, Any]], None],
    ) -> None:
        """keep: is given the whole response."""
        super().__init__(context, chat)
        self._keep, self._numbers = keep, itertools.count()
        text, reasoning = body.text, body.reasoning
        wanted = (
            text.format.model_dump(by_alias=True, exclude_none=True)
            if text is not None and text.format is not None
            else None
        )
        choice = body.tool_choice or "auto"
        self._head: dict[str, Any] = {
            "id": new_id("resp_"),
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
        self._status = "completed"  # of an item that is closed

    def start(self) -> Iterator[Event]:
        unfinished = self._response("in_progress", [])
        for kind in ("created", "in_progress"):
            yield {"type": f"response.{kind}", "response": unfinished}

    def finish(self, completion: Completion) -> Iterator[Event]:
        yield from super().finish(completion)
        status, details = ("incomplete", {"reason": "max_output_tokens"}) if completion.is_cut else ("completed", None)
        self._status = status
        yield from self._close()
        self.whole = self._response(status, self.blocks, self._usage(completion), incomplete_details=details)
        self._keep(self.whole)
        yield {"type": f"response.{status}", "response": self.whole}

    def failed(self, error: ApiError) -> Iterator[Event]:
        if self._is_open:
            self._fill()
        reason = {"code": "server_error", "message": str(error)}
        yield {"type": "response.failed", "response": self._response("failed", self.blocks, error=reason)}

    def written(self, events: Iterable[Event]) -> bytes:
        return super().written({**event, "sequence_number": next(self._numbers)} for event in events)

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: dict[str, Any] | None = None, **ending: Any
    ) -> dict[str, Any]:
        ending = {"error": None, "incomplete_details": None, **ending}
        ending["completed_at"] = int(time.time()) if status == "completed" else None
        return {**self._head, "status": status, **ending, "output": output, "usage": usage, **self._asked}

    def _usage(self, completion: Completion) -> dict[str, Any]:
        usage = completion.usage
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens(completion)},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }

    def _open(self, kind: str, name: str | None) -> Iterator[Event]:
        fields: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        fields["content"] = []
        if kind == "function_call":
            fields = {"name": name, "call_id": new_id("call_"), "arguments": ""}
        item = {"id": new_id(_PREFIXES[kind]), "type": kind, **fields, "status": "in_progress"}
        self.blocks.append(item)
        yield {"type": "response.output_item.added", "output_index": len(self.blocks) - 1, "item": _copy(item)}
        if kind != "function_call":
            part: dict[str, Any] = {"type": _PART_TYPES[kind], "text": ""}
            part |= {"annotations": [], "logprobs": []} if kind == "message" else {}
            yield self._event("content_part.added", content_index=0, part=part)
            item["content"].append(dict(part))

    def _grown(self, text: str) -> Event:
        if self.blocks[-1]["type"] == "function_call":
            return self._event("function_call_arguments.delta", delta=text)
        return self._text_event("delta", delta=text)

    def _closed(self) -> Iterator[Event]:
        item = self._fill()
        if item["type"] == "function_call":
            yield self._event("function_call_arguments.done", name=item["name"], arguments=self._text)
        else:
            yield self._text_event("done", text=self._text)
            yield self._event("content_part.done", content_index=0, part=dict(item["content"][0]))
        item["status"] = self._status
        yield {"type": "response.output_item.done", "output_index": len(self.blocks) - 1, "item": _copy(item)}

    def _fill(self) -> dict[str, Any]:
        """Put the text into the last item, and return it."""
        item = self.blocks[-1]
        if item["type"] == "function_call":
            item["arguments"] = self._text
        else:
            item["content"][0]["text"] = self._text
        return item

    def _text_event(self, what: str, **fields: Any) -> Event:
        kind = self.blocks[-1]["type"]
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return self._event(f"{_PART_TYPES[kind]}.{what}", content_index=0, **fields, **logprobs)

    def _event(self, kind: str, **fields: Any) -> Event:
        place = {"item_id": self.blocks[-1]["id"], "output_index": len(self.blocks) - 1}
        return {"type": f"response.{kind}", **place, **fields}


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """Copy the item, which goes on growing."""
    return {**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)
