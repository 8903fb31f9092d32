"""`deepseek-v32 batch in.jsonl out.jsonl`: many requests from a file, in OpenAI's batch format, without a server.

A line of the input is {"custom_id": …, "method": "POST", "url": "/v1/chat/completions" or "/v1/completions", "body": …}; a line of
the output {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}, in the order in which answers end.
A run that is repeated answers what the output does not hold yet, and what failed: the file is the only state.
"""

import asyncio
import json
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .jsonl_log import JsonlLog
from .options import ServingOptions, with_options
from .serve import default_name

if TYPE_CHECKING:
    from ..api.context import ApiContext

log = logging.getLogger(__name__)

URLS = ("/v1/chat/completions", "/v1/completions")
NO_DEADLINE = 30 * 24 * 3600.0  # nobody waits for an answer at the other end


@dataclass(frozen=True)
class Line:
    """One request of the input."""

    custom_id: str
    url: str
    body: Any


@with_options
def batch(
    options: ServingOptions,
    input_file: Annotated[Path, typer.Argument(metavar="IN.JSONL", help="Requests in OpenAI's batch format.")],
    output_file: Annotated[Path, typer.Argument(metavar="OUT.JSONL", help="Answers; those already in it stay.")],
    model_name: Annotated[str | None, typer.Option("--model-name", help="What the requests call the model.")] = None,
) -> None:
    """Answer a file of requests in OpenAI's batch format."""
    lines = read_lines(input_file)
    with closing(Answers(output_file)) as answers:
        rest = [line for line in lines if line.custom_id not in answers.done]
        print(f"{len(rest)} of {len(lines)} requests to answer", file=sys.stderr)
        failed = run(rest, answers, options, model_name) if rest else 0
    if failed:
        print(f"{failed} requests failed; their lines say why", file=sys.stderr)
        raise typer.Exit(1)


def run(lines: list[Line], answers: "Answers", options: ServingOptions, model_name: str | None) -> int:
    """Load the model and answer; how many failed."""
    try:
        from ..api.context import ApiContext
        from ..service.service import Service
    except ImportError as error:
        raise ValueError(f"batch needs pip install -e .[web], which make chat does as well ({error})") from error

    llm = options.load()
    # Beyond what runs there is room for the largest request, of 256 prompts.
    with Service(llm, max_queue=256, deadline=NO_DEADLINE) as service:
        context = ApiContext(service, model_name or default_name(options.model))
        return asyncio.run(answer_all(context, lines, answers, llm.limits.max_sequences))


def read_lines(path: Path) -> list[Line]:
    """The requests of a file; ValueError names the line that is not one, before anything runs."""
    lines: dict[str, Line] = {}
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from None
    for number, text in enumerate(content.split("\n"), start=1):
        if not text.strip():
            continue
        line = _read_line(f"{path}:{number}", text)
        if line.custom_id in lines:
            raise ValueError(f"{path}:{number}: custom_id {line.custom_id!r:.100} stands in an earlier line as well")
        lines[line.custom_id] = line
    if not lines:
        raise ValueError(f"{path}: there are no requests in it")
    return list(lines.values())


def _read_line(place: str, text: str) -> Line:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{place}: this is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("custom_id"), str):
        raise ValueError(f"{place}: an object with a custom_id is wanted")
    if value.get("method", "POST") != "POST" or value.get("url") not in URLS:
        raise ValueError(f"{place}: POST to {' or '.join(URLS)} is wanted")
    return Line(value["custom_id"], value["url"], value.get("body"))


class Answers(JsonlLog):
    """The output file, one line for each request. Failed requests are removed, so that they are asked again."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _key_if_done, drop_failed=True, ensure_ascii=True)


def _key_if_done(record: dict[str, Any]) -> str | None:
    return record["custom_id"] if record["response"]["status_code"] == 200 else None


async def answer_all(context: "ApiContext", lines: list[Line], answers: Answers, at_a_time: int) -> int:
    """Append an answer to each request as it ends; how many failed. `at_a_time` requests are open together."""
    places = asyncio.Semaphore(at_a_time)
    failed = 0

    async def one(line: Line) -> None:
        nonlocal failed
        async with places:
            record = await answer(context, line)
        failed += record["response"]["status_code"] != 200
        answers.append(record)

    async with asyncio.TaskGroup() as group:
        for line in lines:
            group.create_task(one(line))
    return failed


async def when_free(ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """A request of many choices may find no room; it waits until others have ended."""
    from ..service.service import Busy

    while True:
        try:
            return await ask()
        except Busy:
            await asyncio.sleep(0.1)


async def answer(context: "ApiContext", line: Line) -> dict[str, Any]:
    """The output's record for one request. Errors are answers as well."""
    from pydantic import ValidationError

    from ..api.chat import answer_chat
    from ..api.completions import answer_completion
    from ..api.errors import ApiError, invalid
    from ..api.protocol import ChatRequest, CompletionRequest

    status = 200
    try:
        if not isinstance(line.body, dict):
            raise ApiError(400, "the body: an object is wanted")
        if line.body.get("stream"):
            raise ApiError(400, "stream: a batch has no streams", "stream")
        if line.url == URLS[0]:
            body = await when_free(lambda: answer_chat(context, ChatRequest.model_validate(line.body)))
        else:
            body = await when_free(lambda: answer_completion(context, CompletionRequest.model_validate(line.body)))
    except ValidationError as error:
        refusal = invalid(error.errors())
        status, body = refusal.status, refusal.body()
    except ApiError as error:
        status, body = error.status, error.body()
    response = {"status_code": status, "request_id": f"req_{secrets.token_hex(12)}", "body": body}
    return {
        "id": f"batch_req_{secrets.token_hex(12)}",
        "custom_id": line.custom_id,
        "response": response,
        "error": None,
    }
