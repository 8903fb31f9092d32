"""The page's events: each takes what gradio sends, changes a conversation and returns what the page shows.

The page holds the conversation and sends it with every event. So tabs cannot mix, a reload loses nothing, and a restarted
server continues where it was. Whatever comes from the page is checked like any input.
"""

import logging
import secrets
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import gradio as gr

from ..params import SamplingParams
from ..server.service.service import Busy, Service
from .answering import FAILED, GenerationSettings, Run, Runs, answer
from .conversation import MAX_CHARACTERS, Conversation, Message, new_id, with_files
from .examples import examples
from .experiments import Experiments, Recordings
from .markdown import to_html

log = logging.getLogger(__name__)

Value = dict[str, Any]  # the value of the log component
Update = tuple[Any, Any, Any]  # new values of the log, the text box and the files
MAX_SEED = 2**48  # JavaScript's numbers hold it exactly


class Handlers:
    """The handlers of the application. Everything that differs between tabs comes with the event."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.llm = service.llm
        self.runs = Runs()
        self.recordings = Recordings()
        self.experiments = Experiments(service, self.recordings)

    def send(
        self, request: gr.Request, value: Value, text: str, files: Any, system: str, *settings: Any
    ) -> Iterator[Update]:
        """Answer the question in the text box."""
        try:
            conversation = _conversation(value)
            if not (text or "").strip() and not files:
                return
            conversation.messages.append(_user_message(text, files))
            conversation.system = system or ""
            self._check_length(conversation, settings)
        except ValueError as error:
            yield _notice(error), gr.skip(), gr.skip()
            return
        yield from self._answer(value, conversation, text, settings, request)

    def retry(
        self, request: gr.Request, event: gr.EventData, value: Value, text: str, files: Any, system: str, *settings: Any
    ) -> Iterator[Update]:
        """Answer a user's turn again, perhaps with its text edited; later turns are dropped. A `seed` in the event replaces the
        one of the settings, so that the same answer can be sampled again."""
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
            self._check_length(conversation, settings)
        except (ValueError, IndexError, TypeError) as error:
            yield _notice(error), gr.skip(), gr.skip()
            return
        seed = data.get("seed")
        if isinstance(seed, int):
            settings = (*settings[:4], str(seed), *settings[5:])
        yield from self._answer(value, conversation, None, settings, request)

    def example(self, request: gr.Request, event: gr.EventData, value: Value, *settings: Any) -> Iterator[Update]:
        """Copy an example conversation and answer its last question."""
        chosen = examples(self.llm.limits.max_model_len)
        index = (event._data or {}).get("index")
        if not isinstance(index, int) or not 0 <= index < len(chosen):
            return
        conversation = Conversation.from_json(chosen[index].conversation.to_json() | {"id": new_id()})
        thinking, *others = settings
        yield from self._answer(value, conversation, "", (thinking or chosen[index].thinking, *others), request)

    def restore(self, event: gr.EventData) -> tuple[Any, str]:
        """Show a conversation from the browser's storage or from a file: (the log's value, its system prompt)."""
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
        """Stop the answer that the page shows."""
        run = value.get("running") if isinstance(value, dict) else None
        if isinstance(run, str):
            self.runs.stop(run_id=run)

    def leave(self, request: gr.Request) -> None:
        """Stop the answers of a tab that was closed."""
        self.runs.stop(session=request.session_hash or "")

    def count_tokens(self, text: Any) -> dict[str, int]:
        """Token count of a dropped file, for its label, and how many tokens a conversation may have."""
        room = self.llm.limits.max_model_len - 1
        if not isinstance(text, str) or len(text) > MAX_CHARACTERS or self.llm.tokenizer is None:
            return {"tokens": 0, "room": room}
        return {"tokens": len(self.llm.tokenizer.encode(text)), "room": room}

    def empty(self) -> Value:
        return self._value(Conversation())

    def _check_length(self, conversation: Conversation, settings: tuple[Any, ...]) -> None:
        """Raise ValueError for a conversation that the context cannot hold. Then the page keeps the question in its box."""
        tokens = len(self.llm.chat_token_ids(conversation.for_model(), bool(settings[0])))
        room = self.llm.limits.max_model_len - 1
        if tokens <= room:
            return
        *earlier, last = conversation.messages
        own = len(self.llm.chat_token_ids([{"role": "user", "content": with_files(last)}]))
        subject = "This message has" if own > room or not earlier else "This conversation, with the message, has"
        count = own if own > room else tokens
        raise ValueError(f"{subject} {count:,} tokens; the model reads at most {room:,}.")

    def _answer(
        self, value: Value, conversation: Conversation, text: str | None, settings: tuple[Any, ...], request: gr.Request
    ) -> Iterator[Update]:
        """Yield views of the growing answer. `text` None leaves the text box and the files; any other value empties both."""
        run = Run(request.session_hash or "")
        cleared: tuple[Any, Any] = (gr.skip(), gr.skip()) if text is None else ("", [])
        conversation.title = conversation.title or conversation.name()
        self.runs.add(run)
        try:
            generation = _generation_settings(settings)
            yield self._value(conversation, run.id), *cleared
            for _ in answer(self.service, conversation, generation, run, self.recordings.keep):
                yield self._value(conversation, run.id), gr.skip(), gr.skip()
        except Exception as error:
            is_public = isinstance(error, ValueError | Busy)
            if not is_public:
                log.exception("an answer failed")
            if conversation.messages[-1].role == "user":
                conversation.messages.append(Message("assistant", ""))
            conversation.messages[-1].error = str(error) if is_public else FAILED
            conversation.messages[-1].finish = "error"
        finally:
            run.stopped = True
            self.runs.remove(run)
        yield self._value(conversation), gr.skip(), gr.skip()

    def _value(self, conversation: Conversation, running: str | None = None) -> Value:
        """Make the log's value. Its HTML always comes from the texts; HTML from a page is never shown."""
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
        stats = self.service.stats().engine
        return {
            "context": int(numbers.get("prompt_tokens", 0) + numbers.get("completion_tokens", 0)),
            "most_context": self.llm.limits.max_model_len,
            "pages": stats.pages_used,
            "cached_pages": stats.pages_cached,
            "most_pages": self.llm.limits.page_count,
        }


def _notice(error: Exception) -> Value:
    """Replace the log's value by a notice, which the page shows for a while above the unchanged log."""
    return {"notice": str(error)[:300]}


@lru_cache(maxsize=256)
def _html(text: str) -> str:
    return to_html(text) if text else ""


def _conversation(value: Any) -> Conversation:
    return Conversation.from_json((value or {}).get("conversation") or {} if isinstance(value, dict) else {})


def _user_message(text: str, files: Any) -> Message:
    message = {"role": "user", "content": text or "", "files": files or []}
    return Conversation.from_json({"messages": [message]}).messages[0]


def _generation_settings(settings: tuple[Any, ...]) -> GenerationSettings:
    """Read the values of the page's controls, in their order. ValueError for a value out of range."""
    thinking, temperature, top_p, max_tokens, seed, inspector = settings
    text = str(seed or "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"seed is {text!r}; expected a whole number, or nothing for a new seed each time")
    params = SamplingParams(
        temperature=float(temperature),
        top_p=float(top_p),
        max_tokens=int(max_tokens),
        seed=int(text) if text else secrets.randbelow(MAX_SEED),
    )
    return GenerationSettings(params, bool(thinking), isinstance(inspector, dict) and bool(inspector.get("open")))
