"""The response object: what was asked for, the items of the answer, and how it ended."""

import time
from typing import Any

from ....completion import Completion
from ....params import SamplingParams
from ....text.tokenizer import END_THINK
from ..context import ApiContext, new_id
from .request import ResponseRequest


class Answer:
    """Makes the response objects of one request."""

    def __init__(self, context: ApiContext, body: ResponseRequest, params: SamplingParams, thinks: bool) -> None:
        self._thinks = thinks
        self._end_think = context.tokenizer.special_ids.get(END_THINK)
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
            "tools": [{**tool.model_dump(), "strict": bool(tool.strict)} for tool in body.tools or ()],
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
        is_cut = completion.finish_reason == "length"
        details = {"reason": "max_output_tokens"} if is_cut else None
        return self._response("incomplete" if is_cut else "completed", output, completion, incomplete_details=details)

    def _response(
        self, status: str, output: list[dict[str, Any]], completion: Completion | None = None, **ending: Any
    ) -> dict[str, Any]:
        ending = {"error": None, "incomplete_details": None, **ending}
        ending["completed_at"] = int(time.time()) if status == "completed" else None
        usage = None if completion is None else self._usage(completion)
        return {**self._head, "status": status, **ending, "output": output, "usage": usage, **self._asked}

    def _usage(self, completion: Completion) -> dict[str, Any]:
        usage, tokens = completion.usage, completion.token_ids
        reasoning = 0
        if self._thinks:
            reasoning = tokens.index(self._end_think) + 1 if self._end_think in tokens else len(tokens)
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
