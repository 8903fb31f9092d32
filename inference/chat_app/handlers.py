"""What happens when something is clicked: gradio's events → conversations → what the page shows.

The page holds the conversation and sends it along, so that tabs cannot mix, a reload loses nothing, and a restarted server
goes on where it was. What comes from the page is checked like any input.
"""

import logging
import secrets
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import gradio as gr

from ..llm import LLM
from ..params import SamplingParams
from .answering import FAILED, Asked, Backend, Run, Runs, answer
from .conversation import MOST_CHARACTERS, Conversation, Message, new_id
from .examples import examples
from .markdown import to_html
from .recordings import Recordings

log = logging.getLogger(__name__)

Value = dict[str, Any]  # what the log component holds
Update = tuple[Any, Any, Any]  # of the log, the text box and the files
MOST_SEED = 2**48  # JavaScript's numbers hold it exactly


class Handlers:
    """One for the application; everything that differs between tabs comes with the event."""

    def __init__(self, llm: LLM, backend: Backend) -> None:
        self.llm = llm
        self.backend = backend
        self.runs = Runs()
        self.recordings = Recordings()

    def send(
        self, request: gr.Request, value: Value, text: str, files: Any, system: str, *settings: Any
    ) -> Iterator[Update]:
        """The text box's question."""
        try:
            conversation = _conversation(value)
            if not (text or "").strip() and not files:
                return
            conversation.messages.append(_user_message(text, files))
            conversation.system = system or ""
        except ValueError as error:
            yield _notice(error), gr.skip(), gr.skip()
            return
        yield from self._answer(value, conversation, text, settings, request)

    def retry(
        self, request: gr.Request, event: gr.EventData, value: Value, text: str, files: Any, system: str, *settings: Any
    ) -> Iterator[Update]:
        """Answer again: what was said up to a user's turn, its text perhaps edited. With `seed`, draw the same numbers again."""
        data = event._data or {}
        try:
            conversation = _conversation(value)
            place = int(data.get("index", -1))
            while place >= 0 and conversation.messages[place].role != "user":
                place -= 1
            if not 0 <= place < len(conversation.messages):
                return
            del conversation.messages[place + 1 :]
            if isinstance(data.get("text"), str):
                conversation.messages[place].content = data["text"]
            conversation.system = system or ""
        except (ValueError, IndexError, TypeError) as error:
            yield _notice(error), gr.skip(), gr.skip()
            return
        seed = data.get("seed")
        if isinstance(seed, int):
            settings = (*settings[:4], str(seed), *settings[5:])
        yield from self._answer(value, conversation, None, settings, request)

    def example(self, request: gr.Request, event: gr.EventData, value: Value, *settings: Any) -> Iterator[Update]:
        """A fresh copy of an example conversation, and the answer to its last question."""
        chosen = examples(self.llm.limits.max_model_len)
        index = (event._data or {}).get("index")
        if not isinstance(index, int) or not 0 <= index < len(chosen):
            return
        conversation = Conversation.from_json(chosen[index].conversation.to_json() | {"id": new_id()})
        yield from self._answer(value, conversation, "", settings, request)

    def restore(self, event: gr.EventData) -> tuple[Any, str]:
        """A conversation from the browser's storage or a file: (the log's value, its system prompt)."""
        data = event._data or {}
        try:
            conversation = Conversation.from_json(data.get("conversation"))
        except ValueError as error:
            return _notice(error), gr.skip()
        for message in conversation.messages[-1:]:
            if message.role == "assistant" and not message.finish:
                message.finish = "abort"  # the page was closed while the answer grew
        return self._value(conversation), conversation.system

    def stop(self, value: Value) -> None:
        run = value.get("running") if isinstance(value, dict) else None
        if isinstance(run, str):
            self.runs.stop(run)

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.runs.stop_session(request.session_hash or "")

    def count_tokens(self, text: Any) -> int:
        """For the label of a dropped file."""
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS or self.llm.tokenizer is None:
            return 0
        return len(self.llm.tokenizer.encode(text))

    def empty(self) -> Value:
        return self._value(Conversation())

    def _answer(
        self, value: Value, conversation: Conversation, text: str | None, settings: tuple[Any, ...], request: gr.Request
    ) -> Iterator[Update]:
        """Views of the growing answer; `text` is what is put back into the text box if the question cannot be asked."""
        run = Run(request.session_hash or "")
        cleared: tuple[Any, Any] = (gr.skip(), gr.skip()) if text is None else ("", [])
        conversation.title = conversation.title or conversation.name()
        self.runs.add(run)
        try:
            asked = _asked(settings)
            yield self._value(conversation, run.id), *cleared
            for _ in answer(self.llm, self.backend, conversation, asked, run, self.recordings.keep):
                yield self._value(conversation, run.id), gr.skip(), gr.skip()
        except Exception as error:
            known = isinstance(error, ValueError) or type(error).__name__ == "Busy"
            if not known:
                log.exception("an answer failed")
            if conversation.messages[-1].role == "user":
                conversation.messages.append(Message("assistant", ""))
            conversation.messages[-1].error = str(error) if known else FAILED
            conversation.messages[-1].finish = "error"
        finally:
            run.stopped = True
            self.runs.remove(run)
        yield self._value(conversation), gr.skip(), gr.skip()

    def _value(self, conversation: Conversation, running: str | None = None) -> Value:
        """What the log shows. The HTML is made here, from the texts, each time: none that comes from a page is ever shown."""
        return {
            "conversation": conversation.to_json(),
            "html": [
                [_html(message.content), _html(message.reasoning)] if message.role == "assistant" else None
                for message in conversation.messages
            ],
            "running": running,
            "meter": self._meter(conversation),
        }

    def _meter(self, conversation: Conversation) -> dict[str, int]:
        numbers = next((m.numbers for m in reversed(conversation.messages) if m.numbers), {})
        stats: Any = self.backend.stats() if hasattr(self.backend, "stats") else None
        stats = getattr(stats, "engine", stats)
        return {
            "context": int(numbers.get("prompt_tokens", 0) + numbers.get("completion_tokens", 0)),
            "most_context": self.llm.limits.max_model_len,
            "pages": stats.pages_used if stats else 0,
            "cached_pages": stats.pages_cached if stats else 0,
            "most_pages": self.llm.limits.page_count,
        }


def _notice(error: Exception) -> Value:
    """In place of the log's value: the page says it, and goes on showing what it shows."""
    return {"notice": str(error)[:300]}


@lru_cache(maxsize=256)
def _html(text: str) -> str:
    return to_html(text) if text else ""


def _conversation(value: Any) -> Conversation:
    return Conversation.from_json((value or {}).get("conversation") or {} if isinstance(value, dict) else {})


def _user_message(text: str, files: Any) -> Message:
    message = {"role": "user", "content": text or "", "files": files or []}
    return Conversation.from_json({"messages": [message]}).messages[0]


def _asked(settings: tuple[Any, ...]) -> Asked:
    """ValueError for a setting out of range."""
    thinking, temperature, top_p, max_tokens, seed, inspector = settings
    text = str(seed or "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"seed is {text!r}; a whole number is wanted, or nothing for a fresh one each time")
    params = SamplingParams(
        temperature=float(temperature),
        top_p=float(top_p),
        max_tokens=int(max_tokens),
        seed=int(text) if text else secrets.randbelow(MOST_SEED),
    )
    return Asked(params, bool(thinking), isinstance(inspector, dict) and bool(inspector.get("open")))
