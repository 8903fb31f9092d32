"""`deepseek-v32 batch in.jsonl out.jsonl`: answers a file of requests in OpenAI's batch format, without a server.

A line of the output is {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}, in the order in which
answers finish. A repeated run answers the requests that the output does not answer yet: the output is the only state.
"""

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...model.checkpoint.files import parse_object
from .files import JsonlLog, read_lines
from .options import ServingOptions, option, with_options
from .serve import default_name
from .terminal import answer_bar

if TYPE_CHECKING:
    from ..server.api.context import ApiContext

URLS = ("/v1/chat/completions", "/v1/completions")
REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class BatchRequest:
    """One line of the input."""

    custom_id: str
    url: str
    body: Any


@with_options
def batch(
    options: ServingOptions,
    input_file: Annotated[Path, typer.Argument(metavar="IN.JSONL", help="Requests in OpenAI's batch format.")],
    output_file: Annotated[Path, typer.Argument(metavar="OUT.JSONL", help="Answers. Existing answers stay.")],
    model_name: Annotated[str | None, option("The model's name in the requests.")] = None,
) -> None:
    """Answer a file of requests in OpenAI's batch format."""
    requests = read_requests(input_file)
    answers = open_answers(output_file)
    with answers.holding([request.custom_id for request in requests]):
        unanswered = [request for request in requests if request.custom_id not in answers.done]
        print(f"{len(unanswered)} of {len(requests)} requests to answer", file=sys.stderr)
        failed = run(unanswered, answers, options, model_name) if unanswered else 0
    if failed:
        print(f"{failed} requests failed; their lines say why", file=sys.stderr)
        raise typer.Exit(1)


def run(requests: list[BatchRequest], answers: JsonlLog, options: ServingOptions, model_name: str | None) -> int:
    """Load the model and answer the requests; returns the number of failed ones."""
    try:
        from ..server.api.context import ApiContext
        from ..server.service.service import NO_DEADLINE, Service
    except ImportError as error:
        raise ValueError(f"batch needs the web extra; run make chat or pip install -e .[web] ({error})") from error

    llm = options.load()
    # The queue has room for the largest request, 256 prompts, in addition to the running ones.
    with Service(llm, max_queue=256, deadline=NO_DEADLINE) as service:
        context = ApiContext(service, model_name or default_name(options.model))
        with answer_bar(len(requests)) as show:

            def progress(done: int) -> None:
                now = service.stats().engine
                show(done, max(now.computed_tokens - now.generated_tokens, 0), now.generated_tokens)

            return asyncio.run(answer_all(context, requests, answers, llm.limits.max_sequences, progress))


def read_requests(path: Path) -> list[BatchRequest]:
    """Read and check the requests of a file. ValueError names the line that is not a request."""
    requests: dict[str, BatchRequest] = {}
    for number, text in read_lines(path):
        place = f"{path}:{number}"
        try:
            value = parse_object(text.encode())
        except ValueError as error:
            raise ValueError(f"{place}: {error}; expected a JSON object with a custom_id") from None
        if not isinstance(id := value.get("custom_id"), str):
            raise ValueError(f"{place}: custom_id is {id!r:.50}; expected a text")
        if value.get("method", "POST") != "POST" or value.get("url") not in URLS:
            target = f"{value.get('method', 'POST')} to {value.get('url')}"
            raise ValueError(f"{place}: request is a {target:.100}; expected a POST to {' or '.join(URLS)}")
        if id in requests:
            raise ValueError(f"{place}: custom_id is {id!r:.100}; expected one that no earlier line has")
        requests[id] = BatchRequest(id, value["url"], value.get("body"))
    if not requests:
        raise ValueError(f"{path} has no requests; expected at least 1")
    return list(requests.values())


def open_answers(path: Path) -> JsonlLog:
    """The output file, one line for each request. Failed requests are removed, so that they are asked again."""

    def key_if_done(record: dict[str, Any]) -> str | None:
        custom_id, status = record["custom_id"], record["response"]["status_code"]
        if not isinstance(custom_id, str):
            raise TypeError("custom_id")
        return custom_id if status == 200 else None

    return JsonlLog(path, key_if_done, drop_failed=True, ensure_ascii=True)


async def answer_all(
    context: "ApiContext",
    requests: list[BatchRequest],
    answers: JsonlLog,
    max_open: int,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Append each request's record when it finishes, at most `max_open` together; returns the number of failed ones."""
    open_requests = asyncio.Semaphore(max_open)
    failed = done = 0

    async def answer_one(request: BatchRequest) -> None:
        nonlocal failed, done
        async with open_requests:
            record = await answer(context, request)
        failed += record["response"]["status_code"] != 200
        done += 1
        answers.append(record)

    async def report() -> None:
        while True:
            progress(done)
            await asyncio.sleep(REPORT_SECONDS)

    reporting = asyncio.create_task(report())
    try:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(answer_one(request))
    except ExceptionGroup as failures:  # of writing: a full disk, or a pipe whose reader has left
        raise failures.exceptions[0] from None
    finally:
        reporting.cancel()
    progress(done)
    return failed


async def retry_while_busy(ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Ask again while the service is busy: a request may have to wait until others have finished. ApiError if it has ended."""
    from ..server.api.errors import ApiError
    from ..server.service.service import Busy

    while True:
        try:
            return await ask()
        except Busy as error:
            if error.is_final:
                raise ApiError.busy(error) from None
            await asyncio.sleep(0.1)


async def answer(context: "ApiContext", request: BatchRequest) -> dict[str, Any]:
    """Answer or refuse one request; return its output line."""
    from pydantic import ValidationError

    from ..server.api.chat import answer_chat
    from ..server.api.completions import CompletionRequest, answer_completion
    from ..server.api.errors import ApiError, invalid
    from ..server.api.protocol import ChatRequest

    status = 200
    try:
        if not isinstance(request.body, dict):
            raise ApiError(400, f"body is {request.body!r:.50}; expected an object")
        if request.body.get("stream"):
            raise ApiError(400, "stream is true; expected false: a batch has no streams", "stream")
        if request.url == URLS[0]:
            ask = partial(answer_chat, context, ChatRequest.model_validate(request.body))
        else:
            ask = partial(answer_completion, context, CompletionRequest.model_validate(request.body))
        body = await retry_while_busy(ask)
    except (ValidationError, ApiError) as error:
        refusal = error if isinstance(error, ApiError) else invalid(error.errors())
        status, body = refusal.status, refusal.body()
    response = {"status_code": status, "request_id": f"req_{secrets.token_hex(12)}", "body": body}
    id = f"batch_req_{secrets.token_hex(12)}"
    return {"id": id, "custom_id": request.custom_id, "response": response, "error": None}
