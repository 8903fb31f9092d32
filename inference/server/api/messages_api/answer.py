"""The message of an answer and its events: its blocks, why it stopped, and its tokens."""

import json
from collections.abc import Iterator
from typing import Any

from ....completion import Completion
from ....text.tool_arguments import whole_members
from ..blocks import Blocks, Event
from ..context import ApiContext, new_id
from ..protocol import ChatRequest
from .request import MessagesRequest

# Clients send reasoning back only with a signature. This server takes any.
SIGNATURE = "unsigned"
_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


class Answer(Blocks):
    """The blocks so far, and the message around them."""

    KINDS = ("thinking", "text", "tool_use")

    def __init__(self, context: ApiContext, body: MessagesRequest, chat: ChatRequest, prompt_tokens: int) -> None:
        super().__init__(context, chat)
        self._inputs: dict[str, str] = {}  # by the names that stand for them in the blocks: arguments, as JSON
        self._prompt_tokens, self._max_tokens = prompt_tokens, body.max_tokens
        self._head = {"id": new_id("msg_"), "type": "message", "role": "assistant"}
        self._head["model"] = context.model_name

    def start(self) -> Iterator[Event]:
        """The end of the stream corrects the numbers of tokens."""
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        usage = {"input_tokens": self._prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        yield {"type": "message_start", "message": {**message, "usage": {**usage, "output_tokens": 0}}}
        yield {"type": "ping"}

    def finish(self, completion: Completion) -> Iterator[Event]:
        yield from super().finish(completion)
        if not self.blocks:  # programs read the first block without a look
            self._is_open = True
            yield from self._open("text", None)
        yield from self._close()
        ending, usage = self._ending(completion)
        self.whole = {**self._head, "content": self.blocks, **ending, "usage": usage}
        yield {"type": "message_delta", "delta": ending, "usage": usage}
        yield {"type": "message_stop"}

    def body(self) -> str:
        """The arguments of calls stand in it as they are in a stream: numbers may be beyond the range of floats."""
        text = json.dumps(self.whole, ensure_ascii=False)
        for name, arguments in self._inputs.items():
            text = text.replace(json.dumps(name), arguments, 1)
        return text

    def _open(self, kind: str, name: str | None) -> Iterator[Event]:
        named = {"id": new_id("toolu_"), "name": name} if kind == "tool_use" else {}
        self.blocks.append({"type": kind, **named, **_EMPTY[kind]})
        yield {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": dict(self.blocks[-1])}

    def _grown(self, text: str) -> Event:
        kind = self.blocks[-1]["type"]
        return self._delta(
            "input_json" if kind == "tool_use" else kind, "partial_json" if kind == "tool_use" else kind, text
        )

    def _closed(self) -> Iterator[Event]:
        block = self.blocks[-1]
        if block["type"] == "tool_use":
            block["input"] = f"input of {block['id']}"
            self._inputs[block["input"]] = whole_members(self._text)
        else:
            block[block["type"]] = self._text
        if block["type"] == "thinking":
            block["signature"] = SIGNATURE
            yield self._delta("signature", "signature", SIGNATURE)
        yield {"type": "content_block_stop", "index": len(self.blocks) - 1}

    def _delta(self, kind: str, name: str, text: str) -> Event:
        delta = {"type": f"{kind}_delta", name: text}
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}

    def _ending(self, completion: Completion) -> tuple[dict[str, Any], dict[str, Any]]:
        stop, count = completion.stop_reason, completion.usage
        if completion.is_cut:
            is_full = count.completion_tokens < self._max_tokens
            reason = "model_context_window_exceeded" if is_full else "max_tokens"
        elif isinstance(stop, str):
            reason = "stop_sequence"
        else:
            reason = "tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn"
        usage = {
            "input_tokens": count.prompt_tokens - count.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": count.cached_tokens,
            "output_tokens": count.completion_tokens,
            "output_tokens_details": {"thinking_tokens": self.reasoning_tokens(completion)},
        }
        return {"stop_reason": reason, "stop_sequence": stop if isinstance(stop, str) else None}, usage
