"""The routes of /v1/messages."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from ...service.streams import AsyncStream
from ..blocks import answered, streamed
from ..chat import make_chat_requests
from ..context import ApiContext
from ..conversations import conversation_ids
from ..errors import MessageErrorResponse, declared, renamed, skipped
from ..events import EventStream, whole
from ..fields import response_schema
from ..guard import BoundedRoute
from ..responses import EVENTS
from .answer import Answer
from .request import CountRequest, CustomTool, MessagesRequest, chat_request
from .schema import Message, TokenCount

_NAMES = {
    "function.parameters": "input_schema",
    "response_format": "output_config.format",
    "structured_outputs": "output_config.format",
    "stop": "stop_sequences",
    "tool_choice is required": "tool_choice is any",
    "none with response_format": "none with output_config.format",
}


def messages_router(context: ApiContext) -> APIRouter:
    router = APIRouter(tags=["Anthropic"], route_class=BoundedRoute)

    @router.post(
        "/v1/messages",
        response_model=None,
        responses={200: {"model": Message, "content": EVENTS}, **declared(404, 504, model=MessageErrorResponse)},
    )
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation."""
        context.check(body.model, 1)
        headers = skipped(body.tools, CustomTool)
        if body.stream:
            return EventStream(streamed(*await _begin(context, body)), headers)
        return await whole(request, answered(_begin(context, body)), headers)

    @router.post(
        "/v1/messages/count_tokens", response_model=TokenCount, responses=declared(404, model=MessageErrorResponse)
    )
    async def count_tokens(body: CountRequest) -> JSONResponse:
        """The number of tokens of a conversation's prompt, if the context can hold them."""
        context.check_model(body.model)
        chat, sources = chat_request(body)
        with renamed(_NAMES):
            encode = partial(conversation_ids, context, chat, response_schema(chat), partial(_name, sources))
            tokens = await context.encoding.run(chat.characters, encode)
        return JSONResponse({"input_tokens": len(tokens)}, headers=skipped(body.tools, CustomTool))

    return router


async def _begin(context: ApiContext, body: MessagesRequest) -> tuple[Answer, AsyncStream]:
    """All refusals of a request happen here."""
    chat, sources = chat_request(body)
    with renamed(_NAMES):
        [request] = await make_chat_requests(context, chat, partial(_name, sources))
        [stream] = await context.service.submit_many([request])
    return Answer(context, body, chat, len(request.prompt)), stream


def _name(sources: list[int], message: int) -> str:
    return "system" if sources[message] < 0 else f"messages[{sources[message]}]"
