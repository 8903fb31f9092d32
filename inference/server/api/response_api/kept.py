"""The latest responses, in memory: what their ids, `previous_response_id` and item references mean. They end with the server."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from ..errors import ApiError
from ..fields import count_characters
from .request import Item, ItemReference, Message, ResponseRequest

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
    """One for each application, for its event loop alone."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._most = max_characters
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._items: dict[str, Item] = {}
        self._size = 0

    def conversation(self, body: ResponseRequest) -> list[Item]:
        """The items that a request means: those of the response before it, and its own, without references. Raises ApiError."""
        items = self._before(body.previous_response_id)
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
        if (found := self._conversations.get(response_id)) is None:
            name = "response_id"
            raise ApiError(
                404, f"{name} is {response_id[:100]!r}; expected that of a response that this server still keeps", name
            )
        return found

    def _forget(self, response_id: str) -> None:
        forgotten = self._conversations.pop(response_id)
        self._size -= forgotten.size
        for each in forgotten.output_ids:
            del self._items[each]

    def _before(self, response_id: str | None) -> list[Item]:
        if response_id is None:
            return []
        if (found := self._conversations.get(response_id)) is None:
            name = "previous_response_id"
            raise ApiError(400, f"{name} is {response_id[:100]!r}; expected the id of a response {_WAY_OUT}", name)
        return found.items

    def _item(self, index: int, item: Item) -> Item:
        if not isinstance(item, ItemReference):
            return item
        if (found := self._items.get(item.id)) is None:
            name = f"input.{index}.id"
            raise ApiError(400, f"{name} is {item.id[:100]!r}; expected the id of an item {_WAY_OUT}", name)
        return found
