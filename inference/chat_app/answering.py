"""One answer, from the question to its last token: deltas become the message that the browser shows while it grows."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..completion import Completion, Delta
from ..inspection import label, new_recording
from ..params import SamplingParams
from ..recording import BUDGET, Recording
from ..server.service.service import Service
from ..text.answer import AnswerDelta, AnswerParser
from .conversation import Conversation, Message, new_id

log = logging.getLogger(__name__)

# Seconds between two views of a growing answer: smooth to the eye, and little work for the server.
UPDATE_INTERVAL = 0.06
PROGRESS_INTERVAL = 0.25  # the same while the prompt is read
FAILED = "Something went wrong while this answer was computed. The server's log says what."
# Errors whose text the browser may show. Texts of other errors may hold internal details.
PUBLIC_ERRORS = {"deadline": "This answer took too long and was ended.", "stopped": "The server has stopped."}


@dataclass
class Run:
    """One running answer."""

    session: str  # of the browser tab that asked
    id: str = field(default_factory=new_id)
    stopped: bool = False
    cancel: Callable[[], None] | None = None  # ends the answer's stream; None before there is one


class Runs:
    """All running answers, so that the stop button and a closed tab can end theirs."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def add(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = run

    def remove(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.id, None)

    def stop(self, *, run_id: str | None = None, session: str | None = None) -> None:
        """Stop the run with this id, or all runs of a session."""
        with self._lock:
            runs = [run for run in self._runs.values() if run_id == run.id or session == run.session]
        for run in runs:
            run.stopped = True
            if run.cancel is not None:
                run.cancel()


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of one question."""

    params: SamplingParams
    thinking: bool = False
    inspect: bool = False


def answer(
    service: Service,
    conversation: Conversation,
    settings: GenerationSettings,
    run: Run,
    keep: Callable[[str, Recording, SamplingParams], None],
) -> Iterator[Message]:
    """Append the answer to the conversation, and yield it each time there is more to show and once in its final state.

    The conversation's last message is the user's. ValueError or Busy, before anything is yielded, if the question is refused.
    `keep` is called with the run's id and the recording of an inspected answer.
    """
    llm = service.llm
    prompt = llm.chat_token_ids(conversation.for_model(), settings.thinking)
    stream = service.stream(prompt, settings.params, settings.inspect)
    message = Message("assistant", "", numbers={"prompt_tokens": len(prompt)})
    if settings.params.seed is not None:
        message.numbers["seed"] = settings.params.seed
    conversation.messages.append(message)
    recording = new_recording(llm.config, llm.precision, prompt, BUDGET) if settings.inspect else None
    run.cancel = lambda: service.cancel(stream.request_id)
    if run.stopped:  # before there was anything to cancel
        run.cancel()
    writer = _MessageWriter(message, settings.thinking, recording)
    try:
        yield message
        delta = None
        while delta is None or delta.finish_reason is None:
            delta = stream.poll(PROGRESS_INTERVAL)
            if delta is None:  # the prompt is being read, or the queue is long
                if writer.read(stream.computed):
                    yield message
            elif writer.push(delta):
                yield message
    finally:
        stream.close()
        writer.finish(run.stopped)
        if recording is not None and recording.count:
            label(recording, llm.tokenizer)
            message.run = run.id
            keep(run.id, recording, settings.params)
    yield message


class _MessageWriter:
    """Writes deltas into the message, with its measurements."""

    def __init__(self, message: Message, thinking: bool, recording: Recording | None) -> None:
        self._message = message
        self._recording = recording
        self._parser = AnswerParser(thinking)
        # Times by time.perf_counter; 0 stands for "not yet".
        self._started = time.perf_counter()
        self._first_token = self._last_token = 0.0
        self._shown = 0.0
        self._tokens = 0
        self._thinking_since = self._started if thinking else None

    def push(self, delta: Delta) -> bool:
        """Add one delta. True if it is time to show the message again."""
        now = time.perf_counter()
        if delta.token_ids:
            self._first_token = self._first_token or now
            self._last_token = now
            self._tokens += len(delta.token_ids)
        if self._recording is not None and delta.selection is not None and delta.token_ids:
            self._recording.add(delta.token_ids[0], delta.selection)
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
        before = self._message.numbers.get("read_tokens", 0)
        self._message.numbers["read_tokens"] = tokens
        return tokens != before and not self._tokens

    def finish(self, stopped: bool) -> None:
        """Complete the message after the stream has ended, for whatever reason."""
        self._add(self._parser.finish(is_cut=stopped or self._message.finish != "stop"))
        self._end_thinking()
        self._measure()
        if stopped or not self._message.finish:
            self._message.finish = "abort"

    def _add(self, delta: AnswerDelta) -> None:
        if delta.content:
            self._end_thinking()
        self._message.reasoning += delta.reasoning_content
        calls = "".join(f"\n\n```json\n{call.name}({call.arguments})\n```\n" for call in delta.tool_calls)
        self._message.content += delta.content + calls

    def _end_thinking(self) -> None:
        if self._thinking_since is not None:
            self._message.numbers["thinking_seconds"] = round(time.perf_counter() - self._thinking_since, 2)
            self._thinking_since = None

    def _measure(self) -> None:
        numbers = self._message.numbers
        numbers["completion_tokens"] = self._tokens
        if self._first_token:
            numbers["time_to_first_token"] = round(self._first_token - self._started, 3)
        if self._tokens > 1 and self._last_token > self._first_token:
            seconds = self._last_token - self._first_token
            numbers["tokens_per_second"] = round((self._tokens - 1) / seconds, 1)

    def _complete(self, completion: Completion) -> None:
        self._message.finish = str(completion.finish_reason)
        self._message.numbers["cached_tokens"] = completion.usage.cached_tokens
        self._message.numbers["drafted_tokens"] = completion.timings.drafted_tokens
        self._message.numbers["kept_share"] = round(completion.timings.selected_fraction, 4)
        if completion.finish_reason == "error":
            log.error("an answer failed: %s", completion.error)
            self._message.error = PUBLIC_ERRORS.get(completion.error_code or "", FAILED)
