"""Answers in a terminal: streamed, stopped by Ctrl-C, and summed up in one line of statistics."""

import re
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from ..text.answer import AnswerDelta, AnswerParser, AssistantMessage

if TYPE_CHECKING:
    from ..completion import Completion, Delta
    from ..engine.request import Request
    from ..llm import LLM
    from ..params import SamplingParams


# A terminal would carry out a model's escape sequences, and characters that change the direction of writing disguise a line.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# A second Ctrl-C this long after the first, with the step still running, ends the program.
INSIST_SECONDS = 3
# Longer prompts show how much of them is read. On two CPU cores the demo reads this many tokens in a second.
LONG_PROMPT = 1024


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Make Ctrl-C call `stop` within the block; a second Ctrl-C, INSIST_SECONDS later, raises KeyboardInterrupt."""
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
    """Yield the deltas of one request. Ctrl-C ends them after the running step, with finish_reason "abort" and a Completion."""
    request, driver = llm.requests.make_one(token_ids, params, inspect, None), llm.driver
    finished = False
    with interruptible(lambda: llm.engine.abort(request.id)), ReadingLine(request, sys.stderr) as line:
        try:
            driver.queue([request])
            while not finished:
                line.show()
                for delta in driver.advance({request.id}):
                    line.erase()
                    finished = delta.finish_reason is not None
                    yield delta
        finally:
            driver.cancel(set() if finished else {request.id})


class ReadingLine:
    """A line of a terminal that says how much of a long prompt is computed, rewritten in place and erased at the end."""

    def __init__(self, request: "Request", out: TextIO) -> None:
        self._request, self._out = request, out
        self._since = 0.0  # time.perf_counter at the first line; 0: there is none yet
        self._before = 0  # tokens that were computed by then
        self._shown = False

    def __enter__(self) -> "ReadingLine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.erase()

    def show(self) -> None:
        done, count = self._request.cache.computed, len(self._request.prompt)
        if self._request.output_count or not self._out.isatty() or (count - done <= LONG_PROMPT and not self._shown):
            return
        now = time.perf_counter()
        if not self._shown:
            self._since, self._before = now, done
        seconds = now - self._since
        rate = f", {(done - self._before) / seconds:,.0f} tokens/s" if done > self._before and seconds > 0 else ""
        text = f"reading the prompt: {done:,} of {count:,} tokens{rate}"
        self._shown = True
        self._out.write(f"\r\x1b[K{dim(text, self._out)}")
        self._out.flush()

    def erase(self) -> None:
        if self._shown:
            self._shown = False
            self._out.write("\r\x1b[K")
            self._out.flush()


def show_stream(
    llm: "LLM",
    token_ids: Sequence[int],
    params: "SamplingParams",
    thinking: bool,
    aside: TextIO,
    inspect: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> "tuple[AssistantMessage, Completion]":
    """Print an answer while it grows, its content on standard output and its reasoning on `aside`. Returns both when complete."""
    parser, printer, completion = AnswerParser(thinking, tools), AnswerPrinter(sys.stdout, aside), None
    for delta in stream(llm, token_ids, params, inspect):
        completion = delta.completion
        printer.add(parser.push(delta.text))
    assert completion is not None
    printer.add(parser.finish(completion.is_cut))
    print(flush=True)
    total = printer.total
    return AssistantMessage(total.content, total.reasoning_content if thinking else None, total.tool_calls), completion


class AnswerPrinter:
    """Prints the parts of an answer: reasoning under a dim heading, content, and each call as name(arguments) on a line."""

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        self._out, self._aside = out, aside
        self.total = AnswerDelta()

    def add(self, delta: AnswerDelta) -> None:
        shown = self.total
        self.total += delta
        if delta.reasoning_content:
            if not shown.reasoning_content and self._aside.isatty():
                print(dim("thinking", self._aside), file=self._aside)
            reasoning = visible(delta.reasoning_content, self._aside)
            print(dim(reasoning, self._aside), end="", file=self._aside, flush=True)
        if delta.content or delta.tool_calls:
            if self.total.reasoning_content and not (shown.content or shown.tool_calls):
                print("\n", file=self._aside, flush=True)
            print(visible(delta.content, self._out), end="", file=self._out, flush=True)
        for number, call in enumerate(delta.tool_calls, len(shown.tool_calls)):
            line = "\n" if number or self.total.content else ""
            print(visible(f"{line}{call.name}({call.arguments})", self._out), end="", file=self._out, flush=True)


def wrapped(text: str, indent: int = 4) -> list[str]:
    """Break the text into lines of the terminal's width, each indented by `indent` spaces. A path is never cut."""
    space, width = " " * indent, shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, space, space, break_on_hyphens=False, break_long_words=False)
    return wrapper.wrap(text)


def size_text(count: int) -> str:
    """Bytes in GiB or MiB."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def visible(text: str, out: TextIO) -> str:
    """Replace control characters, and characters that change the direction of writing, if `out` is a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) if out.isatty() else text


def dim(text: str, out: TextIO) -> str:
    return f"\x1b[2m{text}\x1b[0m" if out.isatty() else text


def statistics(completion: "Completion") -> str:
    """Sum up token counts, speed, and how the answer ended, in one line."""
    usage, timings = completion.usage, completion.timings
    parts = [f"{usage.completion_tokens} token{'s' * (usage.completion_tokens != 1)}"]
    if timings.tokens_per_second is not None:
        guessed = f" ({timings.drafted_tokens} guessed)" if timings.drafted_tokens else ""
        parts.append(f"{timings.tokens_per_second:.1f} tokens/s{guessed}")
    if timings.time_to_first_token is not None:
        parts.append(f"first after {timings.time_to_first_token:.2f} s")
    cached = f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""
    parts.append(f"prompt {usage.prompt_tokens} tokens{cached}")
    if usage.completion_tokens:
        parts.append(f"attended to {timings.selected_fraction:.0%} of the context")
    endings = {"length": "stopped at the length limit", "abort": "stopped", "error": f"failed: {completion.error}"}
    if completion.finish_reason in endings:
        parts.append(endings[completion.finish_reason])
    return ", ".join(parts)


@contextmanager
def optional_bar(description: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar if standard error is a terminal; yields the function to call with (bytes done, total bytes)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


AnswerProgress = Callable[[int, int, int], None]  # (answers, prompt tokens that were read, tokens that were written)


@contextmanager
def answer_bar(total: int, shown: bool = True) -> Iterator[AnswerProgress]:
    """Show how many of `total` prompts are answered, if `shown` and standard error is a terminal; yields the function to call."""
    if not (shown and sys.stderr.isatty()):
        yield lambda answers, read, written: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Answering"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"))
    # With rich's redirection, output to a file on standard output would land in the terminal.
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("", total=total, speed="")

        def show(answers: int, read: int, written: int) -> None:
            seconds = bar.tasks[0].elapsed or 0
            speed = f"{read / seconds:,.0f} tokens/s read" if seconds else ""
            speed += f", {written / seconds:,.0f} written" if seconds and written else ""
            bar.update(task, completed=answers, speed=speed)

        yield show
