"""Answers in a terminal: streamed, stopped by Ctrl-C, and summed up in one line of statistics."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from ..text.answer import AnswerDelta, AnswerParser, AssistantMessage

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import Completion, Delta, SamplingParams

# A model may write escape sequences, which a terminal would carry out, and characters that change the direction of writing, which
# make a line look like another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# A second Ctrl-C this long after the first, with the step still running, ends the program.
INSIST_SECONDS = 3


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block Ctrl-C calls `stop`; another one INSIST_SECONDS later raises KeyboardInterrupt."""
    stopped_at: float | None = None

    def handler(number: int, frame: object) -> None:
        nonlocal stopped_at
        if stopped_at is None:
            stopped_at = time.monotonic()
            stop()
        elif time.monotonic() - stopped_at > INSIST_SECONDS:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def stream(llm: "LLM", token_ids: Sequence[int], params: "SamplingParams", inspect: bool = False) -> "Iterator[Delta]":
    """The deltas of one request. Ctrl-C ends them after the running step, with finish_reason "abort".

    It steps the engine itself: closing `LLM.stream` would end the request without the Completion that says what was generated.
    """
    request = llm.engine.add_request(token_ids, params, inspect)
    with interruptible(lambda: llm.engine.abort(request.id)):
        while llm.engine.has_work:
            for delta in llm.engine.step():
                if delta.request_id == request.id:
                    yield delta


def show_stream(
    llm: "LLM",
    token_ids: Sequence[int],
    params: "SamplingParams",
    thinking: bool,
    aside: TextIO,
    inspect: bool = False,
) -> "tuple[AssistantMessage, Completion]":
    """Print an answer while it grows, its content on standard output and its reasoning on `aside`. Returns both when complete."""
    parser, total, completion = AnswerParser(thinking), AnswerDelta(), None
    for delta in stream(llm, token_ids, params, inspect):
        completion = delta.completion
        total += _show(parser.push(delta.text), total, aside)
    total += _show(parser.finish(), total, aside)
    print(flush=True)
    assert completion is not None
    return AssistantMessage(total.content, total.reasoning_content if thinking else None, total.tool_calls), completion


def _show(delta: AnswerDelta, shown: AnswerDelta, aside: TextIO) -> AnswerDelta:
    if delta.reasoning_content:
        print(dim(visible(delta.reasoning_content, aside), aside), end="", file=aside, flush=True)
    if delta.content:
        if not shown.content and (shown.reasoning_content or delta.reasoning_content):
            print("\n", file=aside, flush=True)
        print(visible(delta.content, sys.stdout), end="", flush=True)
    for call in delta.tool_calls:
        print(visible(f"\n{call.name}({call.arguments})", sys.stdout), end="", flush=True)
    return delta


def visible(text: str, out: TextIO) -> str:
    """The text; if `out` is a terminal, without control characters and those that change the direction of writing."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) if out.isatty() else text


def dim(text: str, out: TextIO) -> str:
    return f"\x1b[2m{text}\x1b[0m" if out.isatty() else text


def statistics(completion: "Completion") -> str:
    """In one line: token counts, speed, and how the answer ended."""
    usage, timings = completion.usage, completion.timings
    parts = [f"{usage.completion_tokens} tokens"]
    if timings.tokens_per_second is not None:
        guessed = f" ({timings.drafted_tokens} guessed)" if timings.drafted_tokens else ""
        parts.append(f"{timings.tokens_per_second:.1f} tokens/s{guessed}")
    if timings.time_to_first_token is not None:
        parts.append(f"first after {timings.time_to_first_token:.2f} s")
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    parts.append(f"prompt {usage.prompt_tokens} tokens{cached}")
    parts.append(f"attended to {timings.selected_fraction:.0%} of the context")
    endings = {"length": "cut at its length limit", "abort": "stopped", "error": f"failed: {completion.error}"}
    if completion.finish_reason in endings:
        parts.append(endings[completion.finish_reason])
    return ", ".join(parts)


def record(completion: "Completion", answer: AssistantMessage | None, **more: Any) -> dict[str, Any]:
    """A completion as JSON values. `answer` None, for a model without tokenizer, puts token ids in the place of the text."""
    values = dict(more)
    if answer is None:
        values["token_ids"] = completion.token_ids
    else:
        values["text"] = answer.content
        if answer.reasoning_content is not None:
            values["reasoning_content"] = answer.reasoning_content
        if answer.tool_calls:
            values["tool_calls"] = [asdict(call) for call in answer.tool_calls]
    values["finish_reason"] = completion.finish_reason
    if completion.stop_reason is not None:
        values["stop_reason"] = completion.stop_reason
    if completion.error is not None:
        values["error"] = completion.error
    return {**values, "usage": asdict(completion.usage), "timings": asdict(completion.timings)}
