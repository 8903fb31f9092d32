"""The page's events: each takes what gradio sends, changes a conversation and returns what the page shows.

The page holds the conversation and sends it with every event. So tabs cannot mix, a reload loses nothing, and a restarted
server continues where it was. Whatever comes from the page is checked like any input. An answer is computed in a thread of its
own, which goes on while the page is reloaded.
"""

import logging
import secrets
import threading
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import gradio as gr

from ...model.demo import NAME as DEMO_NAME
from ..params import SamplingParams
from ..server.service.service import Busy, Service
from .answering import FAILED, GenerationSettings, Run, Runs, answer
from .conversation import MAX_CHARACTERS, Conversation, Message, identifier, new_id, with_files
from .examples import examples, page_of_text
from .experiments import Experiments, Recordings
from .markdown import to_html, to_text
from .tools import chosen_tools

log = logging.getLogger(__name__)

Value = dict[str, Any]  # the value of the log component
FIRST_QUESTION = "The door code is 0042. What is the door code?"
MAX_SEED = 2**48  # JavaScript's numbers hold it exactly


class Handlers:
    """The handlers of the application. Everything that differs between tabs comes with the event."""

    def __init__(self, service: Service, model: str) -> None:
        """model: its name for reports."""
        self.service = service
        self.llm = service.llm
        self.model = model
        # The demo copies what it was told, so its answers are text and not Markdown, and end when they repeat.
        self.is_demo = service.llm.checkpoint == DEMO_NAME
        self.runs = Runs()
        self.recordings = Recordings()
        self.experiments = Experiments(service, self.recordings)

    def send(
        self, request: gr.Request, value: Value, text: str, files: Any, system: str, *settings: Any
    ) -> Iterator[Value]:
        """Answer the question in the text box."""
        try:
            conversation = _conversation(value)
            if not (text or "").strip() and not files:
                raise ValueError("Write a question first.")
            conversation.messages.append(_user_message(text, files))
            conversation.system = system or ""
            self._check_length(conversation, settings)
        except ValueError as error:
            yield _notice(error)
            return
        yield from self._answer(conversation, settings, request, value)

    def retry(
        self, request: gr.Request, event: gr.EventData, value: Value, system: str, *settings: Any
    ) -> Iterator[Value]:
        """Answer a user's turn again; what followed becomes a branch.

        In the event: `text`, an edited question; `thinking`, to think first; `pad`, to put a page of text before the question.
        """
        data = event._data or {}
        try:
            conversation = _conversation(value)
            upto = conversation.messages[: int(data.get("index", -1)) + 1]
            place = max((i for i, message in enumerate(upto) if message.role == "user"), default=-1)
            if place < 0:
                raise ValueError("There is no question before this answer.")
            question = conversation.messages[place]
            text_now = data["text"] if isinstance(data.get("text"), str) else question.content
            if not text_now.strip() and not question.files:
                raise ValueError("Write a question first.")
            page = page_of_text() if data.get("pad") is True else []
            for message in page:
                message.id = new_id()
            conversation.replace(place, [*page, Message("user", text_now, new_id(), question.files)])
            conversation.system = system or ""
            self._check_length(conversation, settings)
        except (ValueError, TypeError) as error:
            yield _notice(error)
            return
        if data.get("thinking") is True:
            settings = (True, *settings[1:])
        yield from self._answer(conversation, settings, request, data)

    def example(self, request: gr.Request, event: gr.EventData, *settings: Any) -> Iterator[Value]:
        """Copy an example conversation, under the `id` of the event, and answer its last question."""
        chosen, data = examples(self.llm.limits.max_model_len), event._data or {}
        index = data.get("index")
        if not isinstance(index, int) or not 0 <= index < len(chosen):
            return
        conversation = Conversation.from_json(chosen[index].conversation.to_json() | {"id": data.get("id")})
        thinking, *others = settings
        yield from self._answer(conversation, (thinking or chosen[index].thinking, *others), request, data)

    def defaults(self) -> tuple[str, float, float, int]:
        """The first draft, temperature, top p and maximum length."""
        limit, params = self.llm.limits.max_model_len, self.llm.default_params
        if self.is_demo:
            return FIRST_QUESTION, 0.0, 1.0, min(160, limit // 4)
        return "", float(params.temperature), float(params.top_p), min(1024, limit // 4)

    def restore(self, event: gr.EventData) -> Value:
        """Show a conversation from the browser's storage or from a file. The value has the event's `ticket`."""
        data = event._data or {}
        return self._restored(data.get("conversation")) | {"ticket": data.get("ticket")}

    def _restored(self, value: Any) -> Value:
        try:
            conversation = Conversation.from_json(value)
        except ValueError as error:
            return _notice(error)
        last = conversation.messages[-1] if conversation.messages else Message("user", "")
        run = self.runs.find(last.id) if last.role == "assistant" else self.runs.answering(conversation.id)
        if run is not None and run.conversation_id == conversation.id and not last.finish:
            return run.value
        self._end(conversation.messages)
        return self._value(conversation)

    def _end(self, messages: list[Message]) -> None:
        """Complete the answers that no run writes any more, in branches, too."""
        for place, message in enumerate(messages):
            for branch in message.branches:
                self._end(branch)
            if message.role == "user" or message.finish or not message.id:  # without one no run wrote it
                continue
            run = self.runs.find(message.id)
            if run is None:
                message.finish = "lost"  # with the server that computed it
            elif run.ended:
                messages[place] = Conversation.from_json(run.value["conversation"]).messages[-1]

    def resume(self, request: gr.Request, event: gr.EventData) -> Iterator[Value]:
        """Show a conversation whose answer goes on, or has ended, since before the page was reloaded."""
        value = self._restored((event._data or {}).get("conversation"))
        run = self.runs.find(value.get("running") or "")
        if run is None:
            yield value
        else:
            run.sessions.add(request.session_hash or "")
            yield from run.follow()

    def stop(self, event: gr.EventData) -> None:
        """Stop an answer."""
        run = (event._data or {}).get("run")
        if isinstance(run, str):
            self.runs.stop(run)

    def leave(self, request: gr.Request) -> None:
        """Stop the answers of a tab that was closed, unless it was only reloaded."""
        self.runs.leave(request.session_hash or "")

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
        tools = [tool.schema() for tool in chosen_tools(settings[5])] or None
        tokens = len(self.llm.chat_token_ids(conversation.for_model(), bool(settings[0]), tools))
        room = self.llm.limits.max_model_len - 1
        if tokens <= room:
            return
        *earlier, last = conversation.messages
        own = len(self.llm.chat_token_ids([{"role": "user", "content": with_files(last)}]))
        subject = "This message has" if own > room or not earlier else "This conversation, with the message, has"
        count = own if own > room else tokens
        raise ValueError(f"{subject} {count:,} tokens; the model reads at most {room:,}.")

    def _answer(
        self, conversation: Conversation, settings: tuple[Any, ...], request: gr.Request, data: Any
    ) -> Iterator[Value]:
        """Yield views of the growing answer. `data` has the id that the page chose for its run."""
        run_id = identifier(data, "run") if isinstance(data, dict) else ""
        if not run_id or self.runs.find(run_id) or self.recordings.find(run_id):
            run_id = new_id()
        run = Run({request.session_hash or ""}, run_id, conversation.id)
        conversation.title = conversation.title or conversation.name()
        run.show(self._value(conversation, run.id))
        self.runs.add(run)
        threading.Thread(target=self._work, args=(run, conversation, settings), daemon=True).start()
        yield from run.follow()

    def _work(self, run: Run, conversation: Conversation, settings: tuple[Any, ...]) -> None:
        """Compute an answer, whether or not a page follows it."""
        try:
            for _ in answer(self.service, conversation, self._settings(settings), run, self.recordings.keep):
                run.show(self._value(conversation, run.id))
        except Exception as error:
            is_public = isinstance(error, ValueError | Busy)
            if not is_public:
                log.exception("an answer failed")
            if conversation.messages[-1].role == "user":
                conversation.messages.append(Message("assistant", "", run.id))
            conversation.messages[-1].error = str(error) if is_public else FAILED
            conversation.messages[-1].finish = "error"
        finally:
            run.show(self._value(conversation), ended=True)

    def _settings(self, values: tuple[Any, ...]) -> GenerationSettings:
        """Read the values of the page's controls, in their order. ValueError for a value out of range."""
        thinking, temperature, top_p, max_tokens, seed, tools = values
        text = str(seed or "").strip()
        if text and not text.isdecimal():
            raise ValueError(f"seed is {text!r}; expected a whole number, or nothing for a new seed each time")
        params = SamplingParams(
            temperature=float(temperature),
            top_p=float(top_p),
            max_tokens=int(max_tokens),
            seed=int(text) if text else secrets.randbelow(MAX_SEED),
        )
        return GenerationSettings(params, bool(thinking), chosen_tools(tools), self.is_demo, self.model)

    def _value(self, conversation: Conversation, running: str | None = None) -> Value:
        """Make the log's value. Its HTML always comes from the texts; HTML from a page is never shown."""
        html = partial(_html, is_text=self.is_demo)
        return {
            "conversation": conversation.to_json(),
            "html": [
                [html(message.content), html(message.reasoning)] if message.role == "assistant" else None
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
            "index_topk": self.llm.config.index_topk,
            "pages": stats.pages_used,
            "cached_pages": stats.pages_cached,
            "most_pages": self.llm.limits.page_count * self.llm.limits.data_ranks,
        }


def _notice(error: Exception) -> Value:
    """Replace the log's value by a notice, which the page shows for a while above the unchanged log."""
    return {"notice": str(error)[:300]}


@lru_cache(maxsize=256)
def _html(text: str, is_text: bool) -> str:
    return (to_text if is_text else to_html)(text) if text else ""


def _conversation(value: Any) -> Conversation:
    return Conversation.from_json((value or {}).get("conversation") or {} if isinstance(value, dict) else {})


def _user_message(text: str, files: Any) -> Message:
    message = {"role": "user", "id": new_id(), "content": text or "", "files": files or []}
    return Conversation.from_json({"messages": [message]}).messages[0]
