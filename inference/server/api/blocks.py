"""An answer as /v1/responses and /v1/messages give it: blocks that are opened, grow and are closed, one after the other."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator
from typing import Any

from ...completion import Completion
from ...text.answer import AnswerDelta, AnswerParser
from ..service.streams import AsyncStream
from .chat import limited
from .context import ApiContext, check_finished
from .errors import ApiError
from .events import collect, merged
from .protocol import ChatRequest

Event = dict[str, Any]  # with its type


class Blocks(ABC):
    """The blocks of one answer so far, and the events with which they grow."""

    KINDS: tuple[str, str, str]  # the types of blocks with reasoning, text, and a call

    def __init__(self, context: ApiContext, chat: ChatRequest) -> None:
        self._context, self._thinks, self._most_calls = context, chat.starts_thinking, chat.most_calls
        self._parser = AnswerParser(chat.starts_thinking, chat.plain_tools())
        self.blocks: list[dict[str, Any]] = []
        self._text, self._is_open = "", False  # of the last block
        self.whole: dict[str, Any] = {}  # the answer, after `finish`

    @abstractmethod
    def start(self) -> Iterator[Event]:
        """The events before the first token."""

    def push(self, text: str) -> Iterator[Event]:
        """The events of a piece of the answer's text."""
        yield from self._add(self._parser.push_parts(text))

    def finish(self, completion: Completion) -> Iterator[Event]:
        """The events of the end."""
        yield from self._add(self._parser.finish_parts(completion.is_cut))

    def body(self) -> str:
        """The whole answer as JSON, after `finish`."""
        return json.dumps(self.whole)

    def failed(self, error: ApiError) -> Iterator[Event]:
        """The events of an answer that has failed. Raises the error where an event that all streams have tells it."""
        raise error

    def written(self, events: Iterable[Event]) -> bytes:
        return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)

    def reasoning_tokens(self, completion: Completion) -> int:
        return self._context.reasoning_tokens(completion) if self._thinks else 0

    def _add(self, parts: Iterable[AnswerDelta]) -> Iterator[Event]:
        reasoning, text, call = self.KINDS
        for part in parts:
            if part.reasoning_content:
                yield from self._grow(reasoning, part.reasoning_content)
            if part.content:
                yield from self._grow(text, part.content)
            for delta in limited(part.call_deltas, self._most_calls):
                yield from self._grow(call, delta.arguments, delta.name)

    def _grow(self, kind: str, text: str, name: str | None = None) -> Iterator[Event]:
        """name: of the function, with which its call begins."""
        if name is not None or not self._is_open or self.blocks[-1]["type"] != kind:
            yield from self._close()
            self._text, self._is_open = "", True
            yield from self._open(kind, name)
        self._text += text
        yield self._grown(text)

    def _close(self) -> Iterator[Event]:
        if self._is_open:
            self._is_open = False
            yield from self._closed()

    @abstractmethod
    def _open(self, kind: str, name: str | None) -> Iterator[Event]:
        """Add a block; yield its first events."""

    @abstractmethod
    def _grown(self, text: str) -> Event:
        """The event of text that the last block has got."""

    @abstractmethod
    def _closed(self) -> Iterator[Event]:
        """Put the whole text into the last block; yield its last events."""


async def answered(begun: Awaitable[tuple[Blocks, AsyncStream]]) -> str:
    """The whole answer. Raises ApiError."""
    blocks, stream = await begun
    [completion] = await collect([stream])
    for _ in (*blocks.push(completion.text), *blocks.finish(completion)):
        pass
    return blocks.body()


async def streamed(blocks: Blocks, stream: AsyncStream) -> AsyncGenerator[bytes, None]:
    """The answer's events."""
    yield blocks.written(blocks.start())
    async for _, deltas in merged([stream]):
        events = [*blocks.push("".join([delta.text for delta in deltas]))]
        if (completion := deltas[-1].completion) is not None:
            try:
                check_finished(completion)
                events += blocks.finish(completion)
            except ApiError as error:
                events = [*blocks.failed(error)]
        if events:
            yield blocks.written(events)
