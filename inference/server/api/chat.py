"""POST /v1/chat/completions."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...completion import Completion, Delta
from ...engine.request import Request as EngineRequest
from ...text.answer import AnswerParser, CallDelta, parse_assistant
from ...text.dsml import ToolCall
from ..service.streams import AsyncStream
from .context import ApiContext, check_finished, new_id, usage
from .conversations import MessageName, answer_params, conversation_ids, grammar_field, message_name
from .errors import DONE, ApiError, declared, skipped
from .events import Chunks, EventStream, collect, merged, whole
from .fields import response_schema, sampling_params
from .guard import BoundedRoute
from .logprobs import chat_logprobs, prompt_logprobs, selections, selections_of
from .protocol import ChatRequest, Tool
from .responses import EVENTS, ChatCompletion


def chat_router(context: ApiContext) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BoundedRoute)

    @router.post(
        "/v1/chat/completions",
        response_model=None,
        responses={200: {"model": ChatCompletion, "content": EVENTS}, **declared(404, 504)},
    )
    async def create_chat_completion(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        headers = skipped(None, Tool, body.verbosity)
        if body.stream:
            context.check(body.model, body.n or 1)
            requests = await make_chat_requests(context, body)
            streams = await context.service.submit_many(requests)
            return EventStream(_stream(context, body, streams, len(requests[0].prompt)), headers)
        return await whole(request, answer_chat(context, body), headers)

    return router


async def answer_chat(context: ApiContext, body: ChatRequest) -> dict[str, Any]:
    """The whole answer in OpenAI's shape. Raises ApiError and Busy."""
    context.check(body.model, body.n or 1)
    requests = await make_chat_requests(context, body)
    count = body.prompt_logprobs
    scored = None if count is None else await prompt_logprobs(context, requests[0].prompt, count)
    completions = await collect(await context.service.submit_many(requests))
    choices = [_choice(context, body, index, completion) for index, completion in enumerate(completions)]
    answer = {
        **context.head("chatcmpl-", "chat.completion"),
        "choices": choices,
        "usage": _usage(context, body, completions),
    }
    return answer if scored is None else {**answer, "prompt_logprobs": scored}


async def make_chat_requests(
    context: ApiContext, body: ChatRequest, name: MessageName = message_name
) -> list[EngineRequest]:
    """The n requests to the engine. name: of the messages, for errors. Raises ApiError and Busy."""
    if body.top_logprobs and not body.logprobs:
        message = f"top_logprobs is {body.top_logprobs}; expected null or 0 unless logprobs is true"
        raise ApiError(400, message, "top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    llm, requests = context.service.llm, context.service.requests
    max_tokens = body.max_completion_tokens or body.max_tokens or requests.max_new_tokens
    params = sampling_params(body, max_tokens, logprobs, requests.default_params)
    size = body.characters
    constrain = partial(answer_params, body, params, context.tokenizer, llm.chat_format)
    params = await context.encoding.run(size, constrain) if body.tools else constrain()
    encode = partial(conversation_ids, context, body, response_schema(body), name)
    inspect = bool(body.return_selections)
    return await context.make_requests(size, encode, params, inspect, grammar_field(body))


def _choice(context: ApiContext, body: ChatRequest, index: int, completion: Completion) -> dict[str, Any]:
    answer = parse_assistant(completion.text, body.starts_thinking, body.plain_tools(), completion.is_cut)
    calls = answer.tool_calls[: body.most_calls]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not answer.content else answer.content,
        "refusal": None,
    }
    if answer.reasoning_content is not None:
        message["reasoning_content"] = answer.reasoning_content
    if calls:
        message["tool_calls"] = [_tool_call(call) for call in calls]
    choice = {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(context.tokenizer, completion.logprobs or []) if body.logprobs else None,
        "finish_reason": _finish_reason(completion, bool(calls)),
    }
    if body.return_selections:
        choice["selections"] = selections(completion.selection or ())
    return choice


async def _stream(
    context: ApiContext, body: ChatRequest, streams: list[AsyncStream], prompt_tokens: int
) -> AsyncGenerator[bytes, None]:
    chunks = Chunks(context.head("chatcmpl-", "chat.completion.chunk"), body.stream_options, prompt_tokens)
    choices = [_StreamedChoice(context, body, index) for index in range(len(streams))]
    contents = [chunks.text(choice.content) for choice in choices]
    for choice in choices:
        yield chunks.choice(choice.piece({"role": "assistant", "content": ""}))
    async for index, deltas in merged(streams):
        chunks.count(deltas)
        piece = choices[index].push(deltas)
        if isinstance(piece, str):
            yield contents[index](piece)
        elif piece is not None:
            yield chunks.choice(piece)
    if chunks.with_usage:
        completions = [choice.completion for choice in choices if choice.completion]
        yield chunks.usage(_usage(context, body, completions))
    yield DONE


class _StreamedChoice:
    """The chunks of one choice of a stream."""

    def __init__(self, context: ApiContext, body: ChatRequest, index: int) -> None:
        self.completion: Completion | None = None
        self._index = index
        self._tokenizer = context.tokenizer if body.logprobs else None
        self._with_selections = bool(body.return_selections)
        self._parser = AnswerParser(body.starts_thinking, body.plain_tools())
        self._most_calls = body.most_calls
        self._has_calls = False

    def push(self, deltas: list[Delta]) -> dict[str, Any] | str | None:
        """The next chunk for these deltas: only its text if it holds nothing else, None if there is nothing to send yet.

        Raises ApiError if the answer failed.
        """
        answer, last = self._parser.push("".join([delta.text for delta in deltas])), deltas[-1].completion
        is_plain = last is None and self._tokenizer is None and not self._with_selections
        if is_plain and not answer.reasoning_content and not answer.call_deltas:
            return answer.content or None
        if last is not None:
            check_finished(last)
            self.completion = last
            answer += self._parser.finish(last.is_cut)
        texts = {"content": answer.content, "reasoning_content": answer.reasoning_content}
        content: dict[str, Any] = {name: text for name, text in texts.items() if text}
        if calls := limited(answer.call_deltas, self._most_calls):
            content["tool_calls"] = [_call_delta(delta) for delta in calls]
            self._has_calls = True
        if is_plain and not content:
            return None
        piece = self.piece(content)
        if self._tokenizer is not None:
            entries = [entry for delta in deltas for entry in delta.logprobs]
            piece["logprobs"] = chat_logprobs(self._tokenizer, entries)
        if last is not None:
            piece["finish_reason"] = _finish_reason(last, self._has_calls)
        return {**piece, "selections": selections_of(deltas)} if self._with_selections else piece

    def content(self, text: str) -> dict[str, Any]:
        return self.piece({"content": text})

    def piece(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}


def _usage(context: ApiContext, body: ChatRequest, completions: list[Completion]) -> dict[str, Any]:
    reasoning = sum(map(context.reasoning_tokens, completions)) if body.starts_thinking else 0
    return usage(completions, len(completions), reasoning)


def limited(calls: Sequence[CallDelta], most: int | None) -> list[CallDelta]:
    """The pieces of an answer's first `most` calls."""
    return [each for each in calls if most is None or each.index < most]


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_id("call_"), "type": "function", "function": function}


def _call_delta(delta: CallDelta) -> dict[str, Any]:
    if delta.name is None:
        return {"index": delta.index, "function": {"arguments": delta.arguments}}
    return {"index": delta.index, **_tool_call(ToolCall(delta.name, delta.arguments))}


def _finish_reason(completion: Completion, has_calls: bool) -> str:
    return "tool_calls" if has_calls and completion.finish_reason == "stop" else completion.finish_reason
