"""One answer from the question to the last token: deltas → the message that the browser shows, a few times a second."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..llm import LLM
from ..params import Completion, Delta, SamplingParams
from ..report.recording import Recording
from ..service.engine_thread import STOPPED, TIMED_OUT
from ..text.answer import AnswerParser
from ..text.token_texts import token_texts
from .conversation import Conversation, Message, new_id

log = logging.getLogger(__name__)

SHOW_EVERY = (
    0.06  # seconds between two views of a growing answer: smooth to the eye, and little work beside the engine's
)
FAILED = "Something went wrong while this answer was computed. The server's log says what."
# Errors that say what to do about them; the others may hold what is nobody's business.
TELLABLE = {TIMED_OUT: "This answer took too long and was ended.", STOPPED: "The server has stopped."}


class Backend(Protocol):
    """What answers: an `LLM`, or the `Service` that several front ends share."""

    def stream(
        self, token_ids: Sequence[int], params: SamplingParams | None = None, inspect: bool = False, /
    ) -> Iterator[Delta]: ...


@dataclass
class Run:
    """An answer under way."""

    session: str  # of the browser tab that asked
    id: str = field(default_factory=new_id)
    stopped: bool = False
    cancel: Callable[[], None] | None = None  # to wake a stream that waits for its first token


class Runs:
    """The answers under way, so that a click, or a tab that closes, can stop them."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = run

    def remove(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.id, None)

    def stop(self, run_id: str) -> None:
        with self._lock:
            runs = [run for run in self._runs.values() if run.id == run_id]
        self._stop(runs)

    def stop_session(self, session: str) -> None:
        with self._lock:
            runs = [run for run in self._runs.values() if run.session == session]
        self._stop(runs)

    def _stop(self, runs: list[Run]) -> None:
        for run in runs:
            run.stopped = True
            if run.cancel is not None:
                run.cancel()


@dataclass
class Asked:
    """The settings that a question is asked with."""

    params: SamplingParams
    thinking: bool = False
    inspect: bool = False


def answer(
    llm: LLM,
    backend: Backend,
    conversation: Conversation,
    asked: Asked,
    run: Run,
    keep: Callable[[str, Recording], None],
) -> Iterator[Message]:
    """Append the answer to the conversation and yield it each time there is more to show, at last in its final state.

    The conversation's last message is the user's. ValueError, before anything is yielded, for what cannot be asked. `keep`
    takes the recording of an inspected answer, under the run's id.
    """
    prompt = llm.chat_token_ids(conversation.for_model(), asked.thinking)
    stream = backend.stream(prompt, asked.params, asked.inspect)
    message = Message("assistant", "", numbers={"prompt_tokens": len(prompt)})
    if asked.params.seed is not None:
        message.numbers["seed"] = asked.params.seed
    conversation.messages.append(message)
    config = llm.config
    recording = Recording(prompt, config.num_hidden_layers, config.index_topk) if asked.inspect else None
    run.cancel = _canceller(backend, stream)
    follow = _Follow(message, asked.thinking, recording)
    try:
        yield message
        for delta in stream:
            if follow.push(delta):
                yield message
            if run.stopped and delta.finish_reason is None and run.cancel is None:
                break
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
        follow.finish(run.stopped)
        if recording is not None and recording.count:
            if llm.tokenizer is not None:
                texts = token_texts(recording.token_ids, llm.tokenizer)
                recording.label(texts, llm.tokenizer.special_ids.values())
            message.run = run.id
            keep(run.id, recording)
    yield message


def _canceller(backend: Backend, stream: Iterator[Delta]) -> Callable[[], None] | None:
    """A way to end the stream from another thread, where the backend has one."""
    cancel, request_id = getattr(backend, "cancel", None), getattr(stream, "request_id", None)
    if cancel is None or request_id is None:
        return None
    return lambda: cancel(request_id)


class _Follow:
    """Puts deltas into the message, with what was measured."""

    def __init__(self, message: Message, thinking: bool, recording: Recording | None) -> None:
        self.message = message
        self.recording = recording
        self.parser = AnswerParser(thinking)
        self.started = time.perf_counter()
        self.first = self.last = 0.0
        self.shown = 0.0
        self.tokens = 0
        self.thinking_since = self.started if thinking else None

    def push(self, delta: Delta) -> bool:
        """Take one delta in; whether it is time to show the message."""
        now = time.perf_counter()
        if delta.token_ids:
            self.first = self.first or now
            self.last = now
            self.tokens += len(delta.token_ids)
        if self.recording is not None and delta.selection is not None and delta.token_ids:
            self.recording.add(delta.token_ids[0], delta.selection)
        if delta.text:
            self._add(self.parser.push(delta.text))
        if delta.completion is not None:
            self._complete(delta.completion)
        if now - self.shown < SHOW_EVERY and self.tokens > 1:
            return False
        self.shown = now
        self._measure()
        return True

    def finish(self, stopped: bool) -> None:
        """The stream has ended, one way or another."""
        self._add(self.parser.finish())
        self._end_thinking()
        self._measure()
        if stopped:
            self.message.finish = "abort"
        self.message.finish = self.message.finish or "abort"

    def _add(self, piece: Any) -> None:
        if piece.content:
            self._end_thinking()
        self.message.reasoning += piece.reasoning_content
        calls = "".join(f"\n\n```json\n{call.name}({call.arguments})\n```\n" for call in piece.tool_calls)
        self.message.content += piece.content + calls

    def _end_thinking(self) -> None:
        if self.thinking_since is not None:
            self.message.numbers["thinking_seconds"] = round(time.perf_counter() - self.thinking_since, 2)
            self.thinking_since = None

    def _measure(self) -> None:
        numbers = self.message.numbers
        numbers["completion_tokens"] = self.tokens
        if self.first:
            numbers["time_to_first_token"] = round(self.first - self.started, 3)
        if self.tokens > 1 and self.last > self.first:
            numbers["tokens_per_second"] = round((self.tokens - 1) / (self.last - self.first), 1)

    def _complete(self, completion: Completion) -> None:
        self.message.finish = str(completion.finish_reason)
        self.message.numbers["cached_tokens"] = completion.usage.cached_tokens
        self.message.numbers["kept_share"] = round(completion.timings.selected_fraction, 4)
        if completion.finish_reason == "error":
            log.error("an answer failed: %s", completion.error)
            self.message.error = TELLABLE.get(completion.error or "", FAILED)
