"""AsyncLLM: `LLM` for coroutines."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, Self, overload

from ...model.selection_policy import SelectionPolicy
from ..chat import ChatCompletion, ChatDelta, ChatReader, Tools, chat_completion
from ..completion import Completion, Delta
from ..engine.engine import EngineStats
from ..engine.request import Request
from ..llm import LLM
from ..params import SamplingParams
from ..prompts import Conversation, Prompt, is_conversation
from .service.service import NO_DEADLINE, Service


class AsyncLLM:
    """An LLM whose answers are awaited. Any number of coroutines share its engine, which runs in a thread of its own.

        async with AsyncLLM(LLM()) as llm:
            answers = await asyncio.gather(llm.generate("…"), llm.chat([{"role": "user", "content": "…"}]))
            async for delta in llm.stream("…"): ...

    It has `LLM`'s methods. Cancelling a task, or leaving a stream, cancels its requests. All coroutines belong to one event
    loop. The LLM itself is in use meanwhile: its own calls that run the engine raise RuntimeError. Closing this closes it, too.
    """

    def __init__(self, llm: LLM) -> None:
        if not isinstance(llm, LLM):
            raise ValueError(f"llm is {llm!r:.100}; expected an LLM")
        self.llm = llm
        self._in_use = ExitStack()
        self._in_use.enter_context(llm.driver.engine("an AsyncLLM, which closes it at the end"))
        # As many again as run at a time wait in the engine, so that the next one is there when one ends; the rest wait here.
        self._service = Service(llm, max_queue=llm.limits.max_sequences, deadline=NO_DEADLINE)
        self._places = asyncio.Semaphore(self._service.capacity)

    async def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> list[Completion]:
        """Like `LLM.generate`."""
        requests = await asyncio.to_thread(self.llm.requests.make, prompts, params, inspect, policy)
        return await self._complete(requests)

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Like `LLM.stream`, but errors come with the first Delta."""
        request = await asyncio.to_thread(self.llm.requests.make_one, prompt, params, inspect, policy)
        async with aclosing(self._deltas(request)) as deltas:
            async for delta in deltas:
                yield delta

    @overload
    async def chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> ChatCompletion: ...

    @overload
    async def chat(
        self,
        messages: Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> list[ChatCompletion]: ...

    async def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: Any = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> ChatCompletion | list[ChatCompletion]:
        """Like `LLM.chat`."""
        rest = (params, thinking, tools, inspect, policy)
        if is_conversation(messages):
            request = await asyncio.to_thread(self.llm.requests.make_one_chat, messages, *rest)
            [answer] = await self._complete([request])
            return chat_completion(answer, thinking, tools)
        requests = await asyncio.to_thread(self.llm.requests.make_chat, messages, *rest)
        return [chat_completion(each, thinking, tools) for each in await self._complete(requests)]

    async def stream_chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> AsyncGenerator[ChatDelta, None]:
        """Like `LLM.stream_chat`, but errors come with the first delta."""
        rest = (messages, params, thinking, tools, inspect, policy)
        request = await asyncio.to_thread(self.llm.requests.make_one_chat, *rest)
        reader = ChatReader(thinking, tools)
        async with aclosing(self._deltas(request)) as deltas:
            async for delta in deltas:
                yield reader.read(delta)

    def stats(self) -> EngineStats:
        """Like `LLM.stats`, after the latest step."""
        return self._service.stats().engine

    async def close(self) -> None:
        """End what is open, with an error, and close the LLM. May be repeated."""
        await asyncio.to_thread(self._service.stop)
        self._in_use.close()
        await asyncio.to_thread(self.llm.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self.llm!r}"

    async def _complete(self, requests: list[Request]) -> list[Completion]:
        return list(await asyncio.gather(*map(self._completion, requests)))

    async def _completion(self, request: Request) -> Completion:
        async with aclosing(self._deltas(request)) as deltas:
            async for delta in deltas:
                if delta.completion is not None:
                    return delta.completion
        raise AssertionError("a stream ends with a completion")

    async def _deltas(self, request: Request) -> AsyncGenerator[Delta, None]:
        async with self._places:
            [stream] = await self._service.submit_many([request])
            with stream:
                async for delta in stream:
                    yield self.llm.recorder.recorded(request, delta)
