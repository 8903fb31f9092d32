"""The message of an answer: its blocks, as they grow and whole, why it stopped, and its tokens."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import from_json

from ....completion import Completion
from ....text.answer import AnswerDelta, AnswerParser, CallDelta
from ..chat import limited
from ..context import ApiContext, new_id
from ..protocol import ChatRequest
from .request import MessagesRequest

Event = dict[str, Any]

# Clients send reasoning back only with a signature. This server takes any.
SIGNATURE = "unsigned"
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_NAMES = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}  # of the texts of deltas


class Answer:
    """The blocks so far, each of which is opened, grows and stops before the next one begins, and the message around them."""

    def __init__(self, context: ApiContext, body: MessagesRequest, chat: ChatRequest, prompt_tokens: int) -> None:
        self._context, self._prompt_tokens = context, prompt_tokens
        self._max_tokens, self._thinks = body.max_tokens, chat.starts_thinking
        self._most_calls = chat.most_calls
        self._parser = AnswerParser(chat.starts_thinking, chat.plain_tools())
        self._head = {"id": new_id("msg").replace("-", "_"), "type": "message", "role": "assistant"}
        self._head["model"] = context.model_name
        self._blocks: list[dict[str, Any]] = []
        self._written, self._is_open = "", False  # of the last block

    def start(self) -> Iterator[Event]:
        """The events before the first token. The end of the stream corrects the numbers of tokens."""
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        usage = {"input_tokens": self._prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        yield {"type": "message_start", "message": {**message, "usage": {**usage, "output_tokens": 0}}}
        yield {"type": "ping"}

    def push(self, text: str) -> Iterator[Event]:
        """The events of a piece of the answer's text."""
        yield from self._add(self._parser.push_parts(text))

    def finish(self, completion: Completion) -> Iterator[Event]:
        """The events of the end."""
        yield from self._add(self._parser.finish_parts(completion.is_cut))
        if not self._blocks:  # programs read the first block without a look
            yield from self._open("text")
        yield from self._close()
        ending, usage = self._ending(completion)
        yield {"type": "message_delta", "delta": ending, "usage": usage}
        yield {"type": "message_stop"}

    def message(self, completion: Completion) -> dict[str, Any]:
        """The whole message, after `finish`."""
        ending, usage = self._ending(completion)
        return {**self._head, "content": self._blocks, **ending, "usage": usage}

    def _add(self, parts: Iterable[AnswerDelta]) -> Iterator[Event]:
        for part in parts:
            if part.reasoning_content:
                yield from self._grow("thinking", part.reasoning_content)
            if part.content:
                yield from self._grow("text", part.content)
            for delta in limited(part.call_deltas, self._most_calls):
                yield from self._grow("tool_use", delta.arguments, delta)

    def _grow(self, kind: str, text: str, call: CallDelta | None = None) -> Iterator[Event]:
        begins_call = call is not None and call.name is not None
        if begins_call or not self._is_open or self._blocks[-1]["type"] != kind:
            yield from self._close()
            named = {"id": f"toolu_{secrets.token_hex(12)}", "name": call.name} if call is not None else {}
            yield from self._open(kind, **named)
        if text:
            self._written += text
            yield self._delta("input_json_delta" if kind == "tool_use" else f"{kind}_delta", _NAMES[kind], text)

    def _open(self, kind: str, **named: Any) -> Iterator[Event]:
        self._blocks.append({"type": kind, **named, **_EMPTY[kind]})
        self._is_open, self._written = True, ""
        yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(self._blocks[-1])}

    def _close(self) -> Iterator[Event]:
        if not self._is_open:
            return
        block, self._is_open = self._blocks[-1], False
        if block["type"] == "tool_use":
            # The arguments of a call that max_tokens cut are the beginning of an object.
            block["input"] = from_json(self._written or "{}", allow_partial=True)
        else:
            block[block["type"]] = self._written
        if block["type"] == "thinking":
            block["signature"] = SIGNATURE
            yield self._delta("signature_delta", "signature", SIGNATURE)
        yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _delta(self, kind: str, name: str, text: str) -> Event:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": {"type": kind, name: text}}

    def _ending(self, completion: Completion) -> tuple[dict[str, Any], dict[str, Any]]:
        stop, count = completion.stop_reason, completion.usage
        if completion.is_cut:
            is_full = count.completion_tokens < self._max_tokens
            reason = "model_context_window_exceeded" if is_full else "max_tokens"
        elif isinstance(stop, str):
            reason = "stop_sequence"
        else:
            reason = "tool_use" if any(block["type"] == "tool_use" for block in self._blocks) else "end_turn"
        thinking = self._context.reasoning_tokens(completion) if self._thinks else 0
        usage = {
            "input_tokens": count.prompt_tokens - count.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": count.cached_tokens,
            "output_tokens": count.completion_tokens,
            "output_tokens_details": {"thinking_tokens": thinking},
        }
        return {"stop_reason": reason, "stop_sequence": stop if isinstance(stop, str) else None}, usage
