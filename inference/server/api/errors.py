"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}; for /v1/messages in Anthropic's. Only the log has
tracebacks."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from ..service.open_work import STOPPED
from ..service.service import Busy

log = logging.getLogger(__name__)


BAD_SCHEMA = "bad_schema"  # the type of pydantic's error about a function's schema
DONE = b"data: [DONE]\n\n"  # the end of a stream of OpenAI's


class ErrorBody(BaseModel):
    message: str
    type: str = Field(description="invalid_request_error, authentication_error or server_error")
    param: str | None = Field(description="the field of the request that is wrong")
    code: str | None


class ErrorResponse(BaseModel):
    error: ErrorBody


class MessageErrorBody(BaseModel):
    type: str
    message: str
    details: dict[str, Any] | None = None


class MessageErrorResponse(BaseModel):
    """Anthropic's shape."""

    type: Literal["error"]
    error: MessageErrorBody


class ApiError(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self, path: str = "") -> dict[str, Any]:
        """The error as the clients of this path know it."""
        if path.startswith("/v1/messages"):
            meaning = _ANTHROPIC.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
            # Claude Code makes a conversation shorter when it reads this.
            is_long = self.code == "context_length_exceeded"
            error: dict[str, Any] = {"type": meaning, "message": f"{'prompt is too long: ' * is_long}{self}"}
            if self.code == "thread_unsupported_request":  # the client asks again, without a thread
                error["details"] = {"error_code": self.code, "unsupported": [self.param]}
            return {"type": "error", "error": error}
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "authentication_error" if self.status == 401 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str) -> JSONResponse:
        return JSONResponse(self.body(path), self.status, self.headers)

    def ending(self, path: str) -> bytes:
        """The error as the last server-sent events of a stream that has begun."""
        body = self.body(path)
        event = b"data: " + json.dumps(body).encode() + b"\n\n"
        return b"event: error\n" + event if body.get("type") == "error" else event + DONE

    @classmethod
    def busy(cls, error: Busy) -> "ApiError":
        return cls(503, str(error), code="busy", headers={"Retry-After": str(error.retry_after)})


_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name a request's own fields instead of the fields of the chat request that it has become."""
    try:
        yield
    except ApiError as error:
        text, field = str(error), error.param
        for old, new in names.items():
            if " " in old or (field is not None and "." in old):  # a phrase, or the end of a field's name
                text, field = text.replace(old, new, 1), field and field.replace(old, new, 1)
            elif begun := re.match(rf"{old}\b", text):
                text, field = new + text[begun.end() :], new
            elif field == old:
                text, field = f"{new}: {text}", new
        raise ApiError(error.status, text, field, error.code, error.headers) from None


def skipped(tools: Sequence[Any] | None, served: type[BaseModel], verbosity: str | None = None) -> dict[str, str]:
    """Headers that tell which tools of a request are not `served`, and a verbosity that is not; the log tells it, too."""
    others = [f"tools.{i}, of type {tool.type}" for i, tool in enumerate(tools or ()) if not isinstance(tool, served)]
    others += [f"verbosity {verbosity}"] if verbosity in ("low", "high") else []
    if not others:
        return {}
    message = f"not served, and not shown to the model: {'; '.join(others[:8])}"
    log.warning(message)
    return {"Warning": f'299 - "{message}"'}


def stopped() -> ApiError:
    return ApiError(503, STOPPED, code="stopped", headers={"Retry-After": "30"})


def overloaded(message: str) -> ApiError:
    """The response to a connection above the limits."""
    return ApiError(503, message, code="connections", headers={"Retry-After": "1", "Connection": "close"})


_MEANINGS = {
    400: "The request cannot be served as it is",
    401: "The API key is missing or wrong",
    403: "The Host or Origin header names another site",
    404: "There is no such model, or no such response any more",
    408: "The request did not arrive in time",
    413: "The request's body is too large",
    415: "The request's body has an encoding that is not served",
    431: "The request's headers are too large",
    500: "The server failed; its log says why",
    503: "The queue is full, there are too many connections, or the server is stopping",
    504: "The request took longer than the server allows",
}
_RETRY_AFTER = {"Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 1}}}


def declared(*statuses: int, model: type[BaseModel] = ErrorResponse) -> dict[int | str, dict[str, Any]]:
    """FastAPI's `responses` for these statuses and for those that every route may have."""
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": model, "description": _MEANINGS[status]}
        for status in sorted({*statuses, 400, 401, 403, 408, 413, 415, 431, 500, 503})
    }
    responses[503]["headers"] = _RETRY_AFTER
    return responses


def install_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return error.response(request.url.path)

    @app.exception_handler(Busy)
    async def on_busy(request: Request, error: Busy) -> JSONResponse:
        return ApiError.busy(error).response(request.url.path)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid(error.errors()).response(request.url.path)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        path = request.url.path[:200]
        if error.status_code == 404:
            known = "one that /openapi.json lists" if path.startswith("/v1") else "one of the API, which is under /v1"
            message = f"path is {path}; expected {known}"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another")
            message = f"method is {request.method}; expected {allowed} at {path}"
        elif error.__cause__ is not None:  # FastAPI's, for a body that Python cannot read
            reason = " ".join(str(error.__cause__).partition(";")[0].split())[:200]
            message = f"body is not JSON that can be read; expected a JSON object: {reason}"
        return ApiError(error.status_code, message, headers=error.headers).response(request.url.path)

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> JSONResponse:
        # starlette logs it.
        message = "the server failed on this request; its log says why"
        return ApiError(500, message).response(request.url.path)


def invalid(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The response for pydantic's errors: the first field's."""
    first = errors[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "it cannot be read")
        return ApiError(400, f"body is not JSON; expected a JSON object: {reason}")
    if first["type"] == "extra_forbidden":
        unknown = [_path(error) for error in errors if error["type"] == "extra_forbidden"]
        paths = [
            " ".join(".".join(map(str, path)).split()) for path in unknown
        ]  # a client's names may hold line breaks
        named = ", ".join(path[:100] for path in paths[:8])
        return ApiError(400, f"{named}: not known here; expected the fields of /openapi.json", param=paths[0][:100])
    # A field of several alternative types has an error for each. The one that got furthest tells which type was meant.
    field = _path(first)[:1]
    furthest = max((error for error in errors if _path(error)[:1] == field), key=_progress)
    path = ".".join(map(str, _path(furthest)))
    message, context = str(furthest["msg"]), furthest.get("ctx", {})
    if furthest["type"] == BAD_SCHEMA:
        return ApiError(400, f"{path} {message}", path)
    if context.get("max_length") == 0:
        message = "this is not served"
    if path and (sentence := _SENTENCE.fullmatch(message)):
        expected = "an object" if "valid dictionary" in message else sentence["expected"]
        if (length := context.get("actual_length")) is not None:
            return ApiError(400, f"{path} has {length} items; expected {expected}", path)
        return ApiError(400, f"{path} is {_short(furthest['input'])}; expected {expected}", path)
    message = message.removeprefix("Value error, ")
    if not path and furthest["type"] != "value_error":
        message += "; expected a JSON object, with Content-Type application/json"
    return ApiError(400, f"{path or 'body'}: {message}", param=path or None)


def _short(value: Any) -> str:
    """Write a value as JSON, or only its type if it may be huge."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value, default=str)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _path(error: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Names of fields and indices of lists, without "body" and the names that pydantic gives to alternative types."""
    unknown = error["loc"][-1:] if error["type"] == "extra_forbidden" else ()
    known = error["loc"][: len(error["loc"]) - len(unknown)]
    return (*(part for part in known if isinstance(part, int) or _FIELD.fullmatch(part)), *unknown)


def _progress(error: Mapping[str, Any]) -> tuple[bool, int, bool]:
    """Return (whether the value has the right type, the depth of the error, whether it is about an object's `type`)."""
    path = _path(error)
    return not error["type"].endswith("_type"), len(path), error["type"] == "literal_error" and path[-1:] == ("type",)


# Of pydantic.
_SENTENCE = re.compile(
    r"(Input|String|List|Dictionary|Value) should (be |have |(?=match))(?P<expected>.+?)( after validation, not \d+)?"
)
_FIELD = re.compile(r"(?!(body|str|int|float|bool)$)[a-z0-9_]+")
