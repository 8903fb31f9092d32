"""One answer, from the question to its last token: deltas become the message that the browser shows while it grows."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..completion import Completion, Delta
from ..engine.running.selection import row_bytes
from ..params import SamplingParams
from ..recording import Recording
from ..server.service.service import Service
from ..text.answer import AnswerDelta, AnswerParser
from ..text.dsml import ToolCall
from .conversation import Conversation, Message
from .experiments import BUDGET
from .tools import Tool, call_tool

log = logging.getLogger(__name__)

# Seconds between two views of a growing answer: smooth to the eye, and little work for the server.
UPDATE_INTERVAL = 0.06
PROGRESS_INTERVAL = 0.25  # the same while the prompt is read
GRACE = 20.0  # seconds for which an answer goes on without a page
KEPT = 256  # complete answers that are kept, the latest ones, for pages that were away when they ended
MOST_CALLS = 4  # rounds of function calls before an answer must end
MOST_RECORDED = BUDGET  # bytes of one answer's recording; the tokens after it are not recorded
LOOP = 8  # tokens; the same ones three times in a row, or more than these, are a loop
LONGEST_LOOP = 64
# The format's marks, which a model that was asked something odd may write into its answer.
_MARKS = re.compile(r"</?think>|</?(?:｜DSML｜)[^<>]*>?|<｜[^<>\n]{1,40}｜>")
FAILED = "Something went wrong while this answer was computed. The server's log says what."
# Errors whose text the browser may show. Texts of other errors may hold internal details.
PUBLIC_ERRORS = {"deadline": "This answer took too long and was ended.", "stopped": "The server has stopped."}


@dataclass(eq=False)
class Run:
    """One running answer, which goes on while the page is reloaded: its views are made once, for all pages that follow it."""

    sessions: set[str]  # of the browser tabs that show it
    id: str  # of the answer's message, too
    conversation_id: str
    stopped: bool = False
    cancel: Callable[[], None] | None = None  # ends the answer's stream; None before there is one
    value: dict[str, Any] = field(default_factory=dict)  # the latest view
    ended: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def show(self, value: dict[str, Any], ended: bool = False) -> None:
        with self._changed:
            self.value, self.ended = value, ended
            self._changed.notify_all()

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield the latest view, and each new one until the answer has ended. Views that come too fast are left out."""
        value = None
        while True:
            with self._changed:
                while self.value is value and not self.ended:
                    self._changed.wait()
                value, is_last = self.value, self.ended
            yield value
            if is_last:
                return


class Runs:
    """All running answers, so that the stop button and a closed tab can end theirs, and a reloaded page finds its own again."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def add(self, run: Run) -> None:
        with self._lock:
            ended = [key for key, each in self._runs.items() if each.ended]
            for key in ended[:-KEPT]:
                del self._runs[key]
            self._runs[run.id] = run

    def find(self, run_id: str) -> Run | None:
        """Return the run of this id, if it has not ended long ago."""
        with self._lock:
            return self._runs.get(run_id)

    def answering(self, conversation_id: str) -> Run | None:
        """Return the latest run of a conversation."""
        with self._lock:
            return next((run for run in reversed(self._runs.values()) if run.conversation_id == conversation_id), None)

    def stop(self, run_id: str) -> None:
        run = self.find(run_id)
        if run is not None:
            run.stopped = True
            if run.cancel is not None:
                run.cancel()

    def leave(self, session: str) -> None:
        """Stop the runs of a tab that was closed, unless another page takes them up soon."""
        with self._lock:
            left = [run for run in self._runs.values() if session in run.sessions and not run.ended]
        for run in left:
            run.sessions.discard(session)

        def stop() -> None:
            for run in left:
                if not run.sessions:
                    self.stop(run.id)

        if left:
            timer = threading.Timer(GRACE, stop)
            timer.daemon = True
            timer.start()


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of one question."""

    params: SamplingParams
    thinking: bool
    tools: Sequence[Tool]
    stop_loops: bool  # end an answer that repeats itself
    model: str  # its name, for reports


def answer(
    service: Service,
    conversation: Conversation,
    settings: GenerationSettings,
    run: Run,
    keep: Callable[[str, Recording, SamplingParams], None],
) -> Iterator[Message]:
    """Append the answer to the conversation, and yield it each time there is more to show and once in its final state.

    The conversation's last message is the user's. ValueError or Busy, before anything is yielded, if the question is refused.
    Functions that the model calls are run, and it is asked again with their results. `keep` is called with the run's id and the
    recording of the answer.
    """
    llm, message = service.llm, Message("assistant", "", id=run.id)
    schemas = [tool.schema() for tool in settings.tools]
    most = MOST_RECORDED // row_bytes(llm.config.num_hidden_layers, llm.config.index_topk)
    for left in reversed(range(MOST_CALLS)):
        prompt = llm.chat_token_ids(conversation.for_model(), settings.thinking, schemas or None)
        stream = service.stream(prompt, settings.params, most)
        run.cancel = partial(service.cancel, stream.request_id)
        if run.stopped:  # before there was anything to cancel
            run.cancel()
        seed = {} if settings.params.seed is None else {"seed": settings.params.seed}
        message.finish, message.numbers = "", {"prompt_tokens": len(prompt), **seed}
        if conversation.messages[-1] is not message:
            conversation.messages.append(message)
        recording = llm.recorder.begin(prompt, settings.params, MOST_RECORDED)
        writer = _MessageWriter(message, settings, recording)
        try:
            yield message
            delta = None
            while delta is None or delta.finish_reason is None:
                delta = stream.poll(PROGRESS_INTERVAL)
                # None while the prompt is read, or the queue is long.
                if writer.read(stream.computed) if delta is None else writer.push(delta):
                    yield message
                if writer.repeats:
                    run.cancel()
        finally:
            stream.close()
            calls = writer.finish(run.stopped)
            if recording.count:
                llm.recorder.label(recording)
                recording.about = {**recording.about, "model": settings.model}
                message.run = run.id
                keep(run.id, recording, settings.params)
                message.numbers["recorded_tokens"] = recording.count
                if recording.story is not None and recording.is_quoted:
                    back = len(prompt) + recording.story.token - recording.story.passage[0]
                    message.numbers["found_back"] = back
        if not (calls and left and settings.tools):
            break
        message.calls += [
            {"name": each.name, "arguments": each.arguments, "result": call_tool(settings.tools, each)}
            for each in calls
        ]
        message.content = ""
    yield message


class _MessageWriter:
    """Writes deltas into the message, with its measurements."""

    def __init__(self, message: Message, settings: GenerationSettings, recording: Recording) -> None:
        self._message, self._settings = message, settings
        self._recording = recording
        self._parser = AnswerParser(settings.thinking, [tool.schema() for tool in settings.tools])
        self._written: list[int] = []  # the latest tokens
        self._texts = ["", message.reasoning]  # content and reasoning with their marks
        self._calls: list[ToolCall] = []
        self.repeats = False
        # Times by time.perf_counter; 0 stands for "not yet".
        self._started = time.perf_counter()
        self._first_token = self._shown = 0.0
        self._first_read: tuple[float, int] | None = None  # when, and how many tokens
        self._tokens = 0
        self._thinking_since: float | None = None

    def push(self, delta: Delta) -> bool:
        """Add one delta. True if it is time to show the message again."""
        now = time.perf_counter()
        if delta.token_ids:
            if not self._first_token:
                self._first_token, self._thinking_since = now, now if self._settings.thinking else None
            self._tokens += len(delta.token_ids)
            self._written = [*self._written, *delta.token_ids][-3 * LONGEST_LOOP :]
            self.repeats = self.repeats or (self._settings.stop_loops and is_loop(self._written))
        for token in delta.token_ids:
            self._recording.add(token, delta.selection)
        if delta.text:
            self._add(self._parser.push(delta.text))
        if delta.completion is not None:
            self._complete(delta.completion)
        if now - self._shown < UPDATE_INTERVAL and self._tokens > 1:
            return False
        self._shown = now
        self._measure()
        return True

    def read(self, tokens: int) -> bool:
        """Note how many of the prompt's tokens are computed. True if there is something new to show."""
        numbers = self._message.numbers
        before = numbers.get("read_tokens", 0)
        numbers["read_tokens"] = tokens
        if tokens > before > 0:
            if self._first_read is None:
                self._first_read = time.perf_counter(), int(before)
            since, first = self._first_read
            rate = (tokens - first) / max(time.perf_counter() - since, 1e-3)
            numbers["seconds_left"] = round((numbers["prompt_tokens"] - tokens) / max(rate, 1e-3), 1)
        return tokens != before and not self._tokens

    def finish(self, stopped: bool) -> list[ToolCall]:
        """Complete the message after the stream has ended, for whatever reason; return the functions that it calls."""
        self._add(self._parser.finish(is_cut=stopped or self._message.finish != "stop"))
        self._end_thinking()
        self._measure()
        if self.repeats:
            self._message.finish = "loop"
        elif stopped or not self._message.finish:
            self._message.finish = "abort"
        return self._calls if self._message.finish == "stop" else []

    def _add(self, delta: AnswerDelta) -> None:
        if delta.content:
            self._end_thinking()
        self._calls += delta.tool_calls
        calls = "".join(f"\n\n```json\n{call.name}({call.arguments})\n```\n" for call in delta.tool_calls)
        self._texts[0] += delta.content + ("" if self._settings.tools else calls)
        self._texts[1] += delta.reasoning_content
        self._message.content, self._message.reasoning = (_MARKS.sub("", text) for text in self._texts)

    def _end_thinking(self) -> None:
        if self._thinking_since is not None:
            self._message.numbers["thinking_seconds"] = round(time.perf_counter() - self._thinking_since, 2)
            self._thinking_since = None

    def _measure(self) -> None:
        numbers = self._message.numbers
        numbers["completion_tokens"] = self._tokens
        if self._first_token:
            numbers["time_to_first_token"] = round(self._first_token - self._started, 3)

    def _complete(self, completion: Completion) -> None:
        numbers, timings = self._message.numbers, completion.timings
        self._message.finish = str(completion.finish_reason)
        numbers["cached_tokens"] = completion.usage.cached_tokens
        numbers["drafted_tokens"] = timings.drafted_tokens
        if self._tokens:
            numbers["kept_share"] = round(timings.selected_fraction, 4)
        if timings.tokens_per_second is not None:
            numbers["tokens_per_second"] = round(timings.tokens_per_second, 1)
        if completion.finish_reason == "error":
            log.error("an answer failed: %s", completion.error)
            self._message.error = PUBLIC_ERRORS.get(completion.error_code or "", FAILED)


def is_loop(tokens: Sequence[int]) -> bool:
    """Tell whether these tokens end in the same LOOP to LONGEST_LOOP tokens, three times in a row."""
    for length in range(LOOP, min(LONGEST_LOOP, len(tokens) // 3) + 1):
        block = tokens[-length:]
        if block == tokens[-2 * length : -length] == tokens[-3 * length : -2 * length]:
            return True
    return False
