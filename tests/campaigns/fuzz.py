"""Campaign: random requests, of which each must get an answer that the server's OpenAPI document declares.

An error must be JSON in OpenAI's shape; a stream must end in [DONE]; a refusal with status 503 must say when to come back.
"""

import asyncio
import json
import random
import re
from collections import Counter
from typing import Any

import h11

from support.raw_http import Response

from .fuzz_requests import Requests
from .live_server import LiveServer

CONCURRENT = 16
ANSWER_SECONDS = 60.0
# For bytes that are no complete request, which the server may refuse or wait for.
INCOMPLETE_SECONDS = 0.2
# For paths that the document does not have.
ANYWHERE = {400, 401, 403, 404, 405, 408, 413, 431, 503}
# The routes of the chat are gradio's; their errors are the server's.
CHAT_PATH = re.compile(r"/$|/(assets|static|svelte|gradio_api|config|theme\.css|favicon|manifest|robots)")
CHAT_STATUS = {200, 206, 304, 307, 416}


class Declared:
    """The answers that the document allows."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths = {
            re.compile(re.sub(r"\\\{[^}]*\\\}", ".+", re.escape(path)) + r"/?"): {
                method.upper(): {int(status) for status in operation["responses"]}
                for method, operation in methods.items()
            }
            for path, methods in document["paths"].items()
        }

    def statuses(self, method: str, path: str) -> set[int]:
        path = path.partition("?")[0].partition("#")[0]
        for pattern, methods in self._paths.items():
            if pattern.fullmatch(path) and method in methods:
                return methods[method] | {404}
        return {200, *ANYWHERE} if path == "/openapi.json" else ANYWHERE


def is_complete(data: bytes) -> tuple[bool, str, str]:
    """(whether h11 reads one whole request there, its method, its path)."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2**16)
    connection.receive_data(data)
    method = path = ""
    try:
        while (event := connection.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
            if isinstance(event, h11.Request):
                method, path = event.method.decode("latin-1"), event.target.decode("latin-1")
            if isinstance(event, h11.EndOfMessage):
                return True, method, path
    except h11.RemoteProtocolError:
        return True, method or data.partition(b" ")[0].decode("latin-1"), path  # it must be refused
    return False, method, path


def complaint(response: Response, method: str, declared: set[int], is_chat: bool, is_whole: bool) -> str | None:
    """Say in one line what is wrong with an answer to a complete request; None if nothing is."""
    status, headers = response.status, response.headers
    if status is None:
        return "no answer" if not response.received else "an answer that is not HTTP"
    if is_whole and not response.is_closed:
        return f"status {status}, and no end"
    if status not in declared:
        return f"status {status}; expected one of {sorted(declared)}"
    if status == 503 and not headers.get("retry-after", "").isdigit():
        return "status 503 without Retry-After"
    if method == "HEAD":
        return None
    if status < 400:
        return None if is_chat else _wrong_answer(response)
    try:
        error = json.loads(response.body)["error"]
    except (ValueError, TypeError, LookupError):
        return f"status {status} with {response.body[:80]!r}; expected an error in OpenAI's shape"
    if headers.get("content-type") != "application/json" or set(error) != {"message", "type", "param", "code"}:
        return f"status {status} with {headers.get('content-type')}, {sorted(error)}"
    if not error["message"] or "\n" in error["message"] or "Traceback" in error["message"]:
        return f"status {status} with the message {error['message'][:80]!r}"
    return None


def _wrong_answer(response: Response) -> str | None:
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        events = [line.removeprefix(b"data: ") for line in response.body.split(b"\n") if line]
        if events and events[0].startswith(
            b"event: response."
        ):  # of /v1/responses, whose events have names and no [DONE]
            names, events = events[::2], events[1::2]
            if not any(names[-1].endswith(end) for end in (b".completed", b".incomplete", b".failed")):
                return "a stream of a response without its end"
        elif not events or events.pop() != b"[DONE]":
            return "a stream without [DONE]"
        return None if all(_is_json(event) for event in events) else "an event that is not JSON"
    if kind == "application/json" and response.body:
        return None if _is_json(response.body) else "an answer that is not JSON"
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def fuzz(seed: int, count: int, server: LiveServer) -> dict[str, Any]:
    document = json.loads((await server.ask("GET", "/openapi.json")).body)
    declared = Declared(document)
    requests = Requests(random.Random(seed), server)
    failures: list[dict[str, Any]] = []
    statuses: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    drawn = iter(range(count))

    async def client() -> None:
        for number in drawn:
            kind, data = requests.draw()
            whole, method, path = is_complete(data)
            response = await server.send(data, ANSWER_SECONDS if whole else INCOMPLETE_SECONDS)
            kinds[kind] += 1
            statuses[str(response.status)] += 1
            if not whole and response.status is None:
                continue
            is_chat = bool(CHAT_PATH.match(path.partition("?")[0]))
            allowed = declared.statuses(method, path) | (CHAT_STATUS if is_chat else set())
            wrong = complaint(response, method, allowed, is_chat, whole)
            if path.startswith("/gradio_api/heartbeat") and response.status == 200:
                continue  # endless by design
            if wrong:
                failures.append(
                    {"number": number, "kind": kind, "why": wrong, "request": data[:1500].decode("latin-1")}
                )

    await asyncio.gather(*(client() for _ in range(CONCURRENT)))
    if not await server.idle():
        failures.append({"why": "the server is not idle 30 s after the last request"})
    if server.process is not None and server.process.poll() is not None:
        failures.append({"why": f"the server has ended with status {server.process.returncode}"})
    failures += [{"why": f"the log has {line[:300]}"} for line in server.complaints()]
    return {"requests": sum(kinds.values()), "kinds": dict(kinds), "statuses": dict(statuses), "failures": failures}


def run(seed: int, count: int, *, server: LiveServer) -> dict[str, Any]:
    """`count` random requests to a server."""
    return asyncio.run(fuzz(seed, count, server))
