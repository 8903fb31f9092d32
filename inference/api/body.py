"""A bound on the number of values in a JSON body, checked before it is read."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from .errors import ApiError

# Above the token ids of every context. Reading holds the interpreter's lock for about 0.1 µs a value, 0.4 µs a list or an object.
MAX_VALUES = 2**20 + 2**16
LIST_COST = 4
# A body with fewer bytes cannot have too many.
SHORT_BODY = 2**18
MAX_QUOTES = 2**19
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class BoundedRoute(APIRoute):
    """A route whose JSON body may have MAX_VALUES values. Of 8 MiB, a list of empty lists would stop the server for 2 s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            if self.body_field is not None:
                try:
                    body = await request.body()
                except ClientDisconnect:
                    return Response(status_code=499)  # nobody reads it
                check_values(body)
                if len(body) > SHORT_BODY:
                    await asyncio.sleep(0)  # others' turn, before the body is read
            return await handle(request)

        return bounded


def check_values(body: bytes) -> None:
    """Raise ApiError for a JSON text with too many values. Commas and brackets inside of its strings do not count."""
    # One pass over the body tells of nearly all that they are no problem.
    if len(body) < SHORT_BODY or LIST_COST * (len(body) - len(body.translate(None, b",[{"))) <= MAX_VALUES:
        return
    if (count := _weigh(body)) <= MAX_VALUES:
        return
    if body.count(b'"') <= MAX_QUOTES:
        count = _weigh(_STRING.sub(b"", body))
    if count > MAX_VALUES:
        raise ApiError(
            413,
            f"the body has about {count} values; expected at most {MAX_VALUES} (a list or an object is {LIST_COST})",
        )


def _weigh(body: bytes) -> int:
    return body.count(b",") + LIST_COST * (body.count(b"[") + body.count(b"{"))
