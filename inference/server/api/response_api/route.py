"""The routes of /v1/responses, their stream of events, and their errors."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import TypeAdapter

from ...service.streams import AsyncStream
from ..blocks import answered, streamed
from ..chat import make_chat_requests
from ..context import ApiContext
from ..errors import ApiError, declared, renamed, skipped
from ..events import EventStream, whole
from ..guard import BoundedRoute
from ..protocol import count_characters
from ..responses import EVENTS
from .answer import Answer
from .request import MAX_ITEMS, FunctionTool, Item, ItemReference, Message, ResponseRequest, chat_request
from .schema import DeletedResponse, ResponseObject

MAX_CHARACTERS = 2**24  # of all conversations together; the oldest are forgotten
_ITEM_COST = 200  # characters for which an item counts besides its texts
_ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])
_WAY_OUT = "that this server still keeps; else send the items of the conversation in input"


@dataclass(frozen=True)
class _Conversation:
    response: dict[str, Any]  # as it was sent
    items: list[Item]  # of the input, the output included
    output_ids: list[str]
    size: int


class KeptResponses:
    """One for each application, used only by its event loop."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._most = max_characters
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._items: dict[str, Item] = {}
        self._size = 0

    def conversation(self, body: ResponseRequest) -> list[Item]:
        """Return a request's items, after the earlier response's items, without references. Raises ApiError."""
        before, name = body.previous_response_id, "previous_response_id"
        items = [] if before is None else self._found(before, 400, name, f"the id of a response {_WAY_OUT}").items
        if isinstance(body.input, str):
            return [*items, Message(role="user", content=body.input)]
        return [*items, *(self._item(index, item) for index, item in enumerate(body.input))]

    def keep(self, response: dict[str, Any], conversation: list[Item]) -> None:
        """Keep a response that has ended, and its conversation, to which its output is added."""
        output = response["output"]
        items = _ITEMS.validate_python(output)
        ids = [item["id"] for item in output]
        size = count_characters([{**response, "output": []}, *conversation, *items])
        size += _ITEM_COST * (len(conversation) + len(items))
        self._conversations[response["id"]] = _Conversation(response, [*conversation, *items], ids, size)
        self._items.update(zip(ids, items, strict=True))
        self._size += size
        while self._size > self._most:
            self._forget(next(iter(self._conversations)))

    def response(self, response_id: str) -> dict[str, Any]:
        """A response as it was sent. Raises ApiError."""
        return self._known(response_id).response

    def delete(self, response_id: str) -> None:
        """Forget a response. Those that have followed it keep their conversations. Raises ApiError."""
        self._known(response_id)
        self._forget(response_id)

    def _known(self, response_id: str) -> _Conversation:
        return self._found(response_id, 404, "response_id", "that of a response that this server still keeps")

    def _found(self, response_id: str, status: int, name: str, expected: str) -> _Conversation:
        if (found := self._conversations.get(response_id)) is None:
            raise ApiError(status, f"{name} is {response_id[:100]!r}; expected {expected}", name)
        return found

    def _forget(self, response_id: str) -> None:
        forgotten = self._conversations.pop(response_id)
        self._size -= forgotten.size
        for each in forgotten.output_ids:
            del self._items[each]

    def _item(self, index: int, item: Item) -> Item:
        if not isinstance(item, ItemReference):
            return item
        if (found := self._items.get(item.id)) is None:
            name = f"input.{index}.id"
            raise ApiError(400, f"{name} is {item.id[:100]!r}; expected the id of an item {_WAY_OUT}", name)
        return found


_OTHER_METHODS = ["POST", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"]


def responses_router(context: ApiContext) -> APIRouter:
    router = APIRouter(tags=["OpenAI"], route_class=BoundedRoute)
    kept = KeptResponses()

    @router.post(
        "/v1/responses",
        response_model=None,
        responses={200: {"model": ResponseObject, "content": EVENTS}, **declared(404, 504)},
    )
    async def create_response(body: ResponseRequest, request: Request) -> Response:
        """Answer a text or a conversation of items."""
        context.check(body.model, 1)
        headers = skipped(body.tools, FunctionTool)
        if body.stream:
            return EventStream(streamed(*await _begin(context, body, kept)), headers)
        return await whole(request, answered(_begin(context, body, kept)), headers)

    @router.get(
        "/v1/responses/{response_id}", response_model=None, responses={200: {"model": ResponseObject}, **declared(404)}
    )
    async def retrieve_response(response_id: str, stream: bool = False) -> Response:
        """A response that is still kept, as it was sent."""
        if stream:
            raise ApiError(400, "stream is true; expected false: the events of a response are not kept", "stream")
        return JSONResponse(kept.response(response_id))

    @router.delete("/v1/responses/{response_id}", response_model=DeletedResponse, responses=declared(404))
    async def delete_response(response_id: str) -> dict[str, Any]:
        """Forget a response that is still kept."""
        kept.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    # By default the framework would allow only GET.
    @router.api_route("/v1/responses/{response_id}", methods=_OTHER_METHODS, include_in_schema=False)
    async def refuse_method() -> None:
        raise HTTPException(405, headers={"Allow": "GET, DELETE"})

    return router


async def _begin(context: ApiContext, body: ResponseRequest, kept: KeptResponses) -> tuple[Answer, AsyncStream]:
    """All refusals of a request happen here."""
    conversation = kept.conversation(body)
    if len(conversation) > MAX_ITEMS:
        raise ApiError(400, f"input has {len(conversation)} items in all; expected at most {MAX_ITEMS}", "input")
    before = len(conversation) - (1 if isinstance(body.input, str) else len(body.input))

    def name(message: int) -> str:
        item = sources[message]
        if item is None:
            return "instructions"
        if item < before:
            return f"input has a conversation of previous_response_id whose item {item}"
        return "input" if isinstance(body.input, str) else f"input[{item - before}]"

    with renamed(_NAMES):
        chat, sources = chat_request(body, conversation)
        [request] = await make_chat_requests(context, chat, name)
        [stream] = await context.service.submit_many([request])

    def keep(response: dict[str, Any]) -> None:
        if body.store is not False:
            kept.keep(response, conversation)

    return Answer(context, body, chat, request.params, keep), stream


_NAMES = {
    "function.parameters": "parameters",
    "messages": "input",
    "response_format": "text.format",
    "structured_outputs": "text.format",
    "none with response_format": "none with text.format",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
}
