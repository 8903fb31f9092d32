"""The state of a chat in the terminal: the conversation, the settings of its answers, and the latest answer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import write_whole

if TYPE_CHECKING:
    from ..completion import Completion
    from ..llm import LLM
    from ..params import SamplingParams
    from ..text.answer import AssistantMessage

Message = dict[str, Any]

# Fields of SamplingParams that /set changes.
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "min_tokens", "stop"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)


class ChatSession:
    """A conversation in OpenAI's messages. No method changes anything if it raises ValueError or OSError."""

    def __init__(
        self,
        llm: "LLM",
        params: "SamplingParams",
        thinking: bool = False,
        system: str | None = None,
        tools: Sequence[Message] | None = None,
    ) -> None:
        self.llm = llm
        self.params = params
        self.thinking = thinking
        self.tools = tools
        self.messages: list[Message] = []
        self._system = system
        self._failed: list[Message] | None = None  # a conversation that ends in a question without an answer
        self._latest: tuple[list[int], Completion] | None = None  # the prompt and the answer, for /inspect
        self.clear()

    @property
    def system(self) -> str | None:
        """The system message."""
        return self._system

    def clear(self) -> None:
        """Forget all but the system message."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]
        self._failed = self._latest = None

    def set_system(self, text: str | None) -> None:
        """Put this system message at the beginning of the conversation, which goes on."""
        rest = self.messages[1:] if self._system is not None else self.messages
        self._system = text
        self.messages = [*([] if text is None else [{"role": "system", "content": text}]), *rest]

    def keep(
        self, messages: list[Message], answer: "AssistantMessage", prompt: list[int], completion: "Completion"
    ) -> Message:
        """The conversation is `messages` and the answer from now on. Returns the answer's message."""
        message = answer.to_message()
        self.messages = [*messages, message]
        self._failed, self._latest = None, (prompt, completion)
        return message

    def note_failure(self, messages: list[Message]) -> None:
        """The question at the end of `messages` has no answer. It is not kept, but may be asked again."""
        self._failed = messages

    def retried(self) -> list[Message]:
        """The conversation up to its last question, or with the question that failed. ValueError if there is none."""
        return self._failed or self.messages[: self._last_question() + 1]

    def undo(self) -> None:
        """Take back the last question and what came after it. ValueError if there is none."""
        self.messages = self.messages[: self._last_question()]
        self._failed = self._latest = None

    def _last_question(self) -> int:
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index]["role"] == "user":
                return index
        raise ValueError("nothing has been asked yet")

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt for the next answer. ValueError for a conversation that the model's format cannot express."""
        return self.llm.chat_token_ids(messages, self.thinking, self.tools)

    def set(self, name: str, value: str) -> None:
        """Change a sampling parameter. ValueError names it, its value and the limit."""
        field = {"max_new_tokens": "max_tokens"}.get(plain := name.lstrip("-").replace("-", "_"), plain)
        if field not in SETTINGS:
            raise ValueError(f"setting is {name}; expected one of {', '.join(SETTINGS)}")
        self.params = replace(self.params, **{field: _parsed(field, value)})

    def settings(self) -> list[tuple[str, Any]]:
        """All that /set can change, with the present values."""
        return [(name, getattr(self.params, name)) for name in SETTINGS]

    def save(self, path: Path) -> int:
        """Write the conversation as a JSON list of messages; returns their number. OSError if it cannot be written."""
        write_whole(path, json.dumps(self.messages, ensure_ascii=False, indent=2) + "\n")
        return len(self.messages)

    def load(self, path: Path) -> int:
        """Go on with a conversation that `save` has written; returns the number of its messages.

        ValueError for a file that holds anything else, OSError for one that cannot be read.
        """
        try:
            messages = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON ({error}); expected a conversation that /save has written") from None
        if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
            raise ValueError(f"{path} holds no messages; expected a list of objects with role and content")
        asked = [] if messages[-1]["role"] in ("user", "tool") else [{"role": "user", "content": "?"}]
        try:
            self.prompt([*messages, *asked])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        self._system = messages[0]["content"] if messages[0]["role"] == "system" else None
        self.messages, self._failed, self._latest = messages, None, None
        return len(messages)

    def inspect(self, path: Path) -> None:
        """Write what DSA selects for the latest answer, whose tokens are computed once more, to a .json or .html file.

        ValueError if there is no answer, and for another name.
        """
        from ...model.selection_policy import SelectionPolicy
        from ..inspection import with_recording
        from ..report.page import write_report

        if path.suffix not in (".json", ".html"):
            raise ValueError(f"file is {path}; expected a name that ends in .json or .html")
        if self._latest is None and self.messages[-1:] and self.messages[-1]["role"] == "assistant":
            raise ValueError("/load and /undo forget the tokens of the latest answer; /retry makes it once more")
        if self._latest is None or not self._latest[1].token_ids:
            raise ValueError("there is no answer yet")
        llm, (prompt, completion) = self.llm, self._latest
        scores = llm.score_answer(prompt, completion.token_ids, SelectionPolicy(len(prompt) - 1, measure=True))
        answer = replace(completion, selection=scores.selections)
        recording = with_recording(llm.config, llm.precision, llm.tokenizer, prompt, answer).recording
        assert recording is not None
        recording.measured([each.logprob for each in scores.logprobs], scores.selections)
        write_report(path, [recording])


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


def _parsed(field: str, text: str) -> Any:
    """A value as it was typed: JSON, none, or a text."""
    if text.lower() in ("none", "null"):
        return () if field == "stop" else None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if field == "stop" and not isinstance(value, list):
        return (text if not isinstance(value, str) else value,)
    return value
