"""A chat in the terminal: the conversation, the settings of its answers, and the commands that change them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import read_small, replacing

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
        self.llm, self.params, self.thinking, self.tools = llm, params, thinking, tools
        self.messages: list[Message] = []
        self._failed: list[Message] | None = None  # a conversation that ends in a question without an answer
        self._latest: tuple[list[int], Completion, SamplingParams] | None = None  # for /inspect
        self._own_files: set[Path] = set()  # files that this chat has read or written, and may replace
        self._set_system(system)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Encode the prompt for the next answer. ValueError for a conversation that the model's format cannot express."""
        return self.llm.chat_token_ids(messages, self.thinking, self.tools)

    def keep(
        self, messages: list[Message], answer: "AssistantMessage", prompt: list[int], completion: "Completion"
    ) -> Message:
        """Continue with `messages` and the answer as the conversation. Returns the answer's message."""
        message = answer.to_message()
        self.messages = [*messages, message]
        self._failed, self._latest = None, (prompt, completion, self.params)
        return message

    def note_failure(self, messages: list[Message]) -> None:
        """Remember a conversation whose last question got no answer, for /retry. The question is not kept."""
        self._failed = messages

    def retried(self) -> list[Message]:
        """Return the conversation up to its last question, or with the question that failed. ValueError if there is none."""
        return self._failed or self.messages[: self._last_question() + 1]

    def _last_question(self) -> int:
        asked = [index for index, message in enumerate(self.messages) if message["role"] == "user"]
        if not asked:
            raise ValueError("nothing has been asked yet")
        return asked[-1]

    @property
    def _system(self) -> str | None:
        return self.messages[0]["content"] if self.messages and self.messages[0]["role"] == "system" else None

    def _set_system(self, text: str | None) -> None:
        rest = self.messages[1:] if self._system is not None else self.messages
        self.messages = [*([] if text is None else [{"role": "system", "content": text}]), *rest]

    # Commands: each takes what follows its name, and returns what to say when it is done.

    def undo(self, argument: str) -> str:
        self.messages = self.messages[: self._last_question()]
        self._failed = self._latest = None
        return f"The last question is taken back; {len(self.messages)} messages are left."

    def clear(self, argument: str) -> str:
        self.messages = self.messages[:1] if self._system is not None else []
        self._failed = self._latest = None
        return f"The conversation is forgotten{'; its system message stays' if self.messages else ''}."

    def system(self, argument: str) -> str:
        if argument:
            self._set_system(None if argument == "off" else argument)
            return "There is no system message now." if argument == "off" else "The system message is set."
        return "There is no system message." if self._system is None else f"The system message is: {self._system}"

    def think(self, argument: str) -> str:
        if argument not in ("", "on", "off"):
            raise ValueError(f"/think is {argument}; expected on or off")
        self.thinking = argument == "on" if argument else not self.thinking
        return f"Answers {'begin with' if self.thinking else 'come without'} the model's reasoning."

    def set(self, argument: str) -> str:
        if not argument:
            values = ((name, getattr(self.params, name)) for name in SETTINGS)
            return "\n".join(f"{name} {'none' if value in (None, ()) else value}" for name, value in values)
        name, _, value = argument.partition(" ")
        if not (value := value.strip()):
            raise ValueError(f"/set {name} has no value; expected a name and a value, as in /set temperature 0.6")
        field = {"max_new_tokens": "max_tokens"}.get(plain := name.lstrip("-").replace("-", "_"), plain)
        if field not in SETTINGS:
            raise ValueError(f"setting is {name}; expected one of {', '.join(SETTINGS)}")
        parsed: Any = () if field == "stop" else None
        if value.lower() not in ("none", "null"):
            try:
                parsed = json.loads(value)
            except (ValueError, RecursionError):
                parsed = value
            if field == "stop" and not isinstance(parsed, list):
                parsed = (parsed if isinstance(parsed, str) else value,)
        self.params = replace(self.params, **{field: parsed})
        return f"{name} is {value}."

    def save(self, argument: str, replace_file: bool = False) -> str:
        path = self._new_file("/save", argument, replace_file)
        with replacing(path) as draft:
            draft.write_text(json.dumps(self.messages, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        self._own_files.add(path.resolve())
        return f"{len(self.messages)} messages saved in {path}."

    def load(self, argument: str) -> str:
        path = _path("/load", argument)
        try:
            messages = json.loads(read_small(path))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON ({error}); expected a conversation that /save has written") from None
        if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
            raise ValueError(f"{path} holds no messages; expected a list of objects with role and content")
        asked = [] if messages[-1]["role"] in ("user", "tool") else [{"role": "user", "content": "?"}]
        try:
            self.prompt([*messages, *asked])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        self.messages, self._failed, self._latest = messages, None, None
        self._own_files.add(path.resolve())
        return f"{len(messages)} messages loaded from {path}."

    def inspect(self, argument: str, replace_file: bool = False) -> str:
        """The latest answer's tokens are computed once more for it."""
        from ...model.selection_policy import SelectionPolicy
        from ..report.page import write_report

        path = self._new_file("/inspect", argument, replace_file)
        if path.suffix not in (".json", ".html"):
            raise ValueError(f"file is {path}; expected a name that ends in .json or .html")
        if self._latest is None and self.messages[-1:] and self.messages[-1]["role"] == "assistant":
            raise ValueError("/load and /undo forget the tokens of the latest answer; /retry makes it once more")
        if self._latest is None or not self._latest[1].token_ids:
            raise ValueError("there is no answer yet")
        llm, (prompt, completion, params) = self.llm, self._latest
        scores = llm.score_answer(prompt, completion.token_ids, SelectionPolicy(len(prompt) - 1, measure=True))
        answer = replace(completion, selection=scores.selections)
        recording = llm.recorder.with_recording(prompt, answer, params).recording
        assert recording is not None
        recording.measured([each.logprob for each in scores.logprobs], scores.selections)
        write_report(path, recording)
        self._own_files.add(path.resolve())
        return f"What DSA selected for the latest answer is in {path}."

    def _new_file(self, command: str, argument: str, replace_file: bool) -> Path:
        """Return the file to write. ValueError if it exists, unless this chat has read or written it, or with `replace_file`."""
        path = _path(command, argument)
        if path.exists() and not (replace_file or path.is_dir() or path.resolve() in self._own_files):
            raise ValueError(f"{path} exists; expected a new name, or {command}! {path} to replace it")
        return path


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise ValueError(f"{command} needs a file name")
    return Path(argument).expanduser()


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


FILE = "FILE"  # an argument that is completed as a path


@dataclass(frozen=True)
class ChatCommand:
    """A command: its argument, its line in /help, and what it does. It may raise ValueError or OSError."""

    argument: str
    help: str
    run: Callable[[ChatSession, str], str] | None = None  # None: the chat's loop does it
    choices: tuple[str, ...] = ()  # for completion


COMMANDS = {
    "/retry": ChatCommand("", "answer the last question again"),
    "/undo": ChatCommand("", "take back the last question and its answer", ChatSession.undo),
    "/clear": ChatCommand("", "forget the conversation but for its system message", ChatSession.clear),
    "/system": ChatCommand("[TEXT|off]", "set the system message, remove it, or show it", ChatSession.system, ("off",)),
    "/think": ChatCommand("[on|off]", "let the model reason before it answers", ChatSession.think, ("on", "off")),
    "/set": ChatCommand("[NAME VALUE]", "change a setting such as temperature, or show all", ChatSession.set, SETTINGS),
    "/save": ChatCommand(FILE, "write the conversation to a new file, as JSON", ChatSession.save),
    "/save!": ChatCommand(FILE, "the same; replace a file that exists", partial(ChatSession.save, replace_file=True)),
    "/load": ChatCommand(FILE, "go on with a conversation that /save has written", ChatSession.load),
    "/inspect": ChatCommand(FILE, "write what DSA selected for the last answer: .html, .json", ChatSession.inspect),
    "/inspect!": ChatCommand(
        FILE, "the same; replace a file that exists", partial(ChatSession.inspect, replace_file=True)
    ),
    "/help": ChatCommand("", "show this list"),
    "/exit": ChatCommand("", "leave (so does Ctrl-D)"),
}


def help_text() -> str:
    """The commands, one on a line, and how to type."""
    width = max(len(f"{name} {each.argument}") for name, each in COMMANDS.items()) + 2
    rows = [f"{f'{name} {each.argument}':{width}}{each.help}" for name, each in COMMANDS.items()]
    ways = (
        'A pasted text is one message, and so are lines between """ and """.',
        "A line that ends in \\ goes on in the next one.",
        "Ctrl-C stops an answer. Tab completes, arrow keys fetch earlier lines.",
    )
    return "\n".join([*rows, *ways])


def parse_command(message: str) -> tuple[str, str] | None:
    """Read a command as (name, argument); None for other messages, also a pasted text that begins with a slash."""
    name, _, argument = message.partition(" ")
    if not message.startswith("/") or ("\n" in message and name.split("\n")[0] not in COMMANDS):
        return None
    return name, argument.strip()
