"""A conversation as the browser stores, exports and sends it: JSON that is checked before it is used."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = "deepseek-v32 conversation"
VERSION = 1
MAX_MESSAGES = 2_000
MAX_FILES = 50  # of one message
MAX_DEPTH = 100  # branches within branches
MAX_CHARACTERS = 4_000_000  # of all texts together; 160K tokens are about 600,000

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBERS = (
    *("time_to_first_token", "tokens_per_second", "cached_tokens", "prompt_tokens", "completion_tokens"),
    *("thinking_seconds", "kept_share", "seed", "read_tokens", "drafted_tokens"),
    *("seconds_left", "recorded_tokens", "found_back"),
)


def new_id() -> str:
    return secrets.token_urlsafe(12)


@dataclass
class Message:
    """One turn. `files` and the branches belong to questions, the fields after them to answers."""

    role: str  # user or assistant
    content: str
    id: str = ""  # tells the turns of two tabs apart; of an answer, the id of its run
    files: list[dict[str, Any]] = field(default_factory=list)  # {name, text, tokens} each
    # Alternatives to this turn and all later ones, in order. `branch` is this turn's place among them.
    branches: list[list["Message"]] = field(default_factory=list)
    branch: int = 0
    reasoning: str = ""
    numbers: dict[str, float] = field(default_factory=dict)  # measurements, by the names in _NUMBERS
    # {name, arguments, result} of the functions that were called before the answer.
    calls: list[dict[str, str]] = field(default_factory=list)
    # The finish reason, "loop" or "lost" (the server ended before the answer); "" while the answer grows.
    finish: str = ""
    error: str = ""  # one line, shown in place of the missing answer
    run: str = ""  # id of the answer's recording; "" if it was not recorded

    def to_json(self) -> dict[str, Any]:
        value = {key: value for key, value in vars(self).items() if value or key in ("role", "content")}
        if self.branches:
            value["branches"] = [[message.to_json() for message in branch] for branch in self.branches]
        return value | ({"numbers": dict(self.numbers)} if self.numbers else {})

    @property
    def characters(self) -> int:
        texts = (self.content, self.reasoning, *(file["text"] for file in self.files))
        calls = sum(len(text) for call in self.calls for text in call.values())
        return sum(map(len, texts)) + calls + sum(each.characters for branch in self.branches for each in branch)


@dataclass
class Conversation:
    id: str = field(default_factory=new_id)
    title: str = ""
    system: str = ""
    messages: list[Message] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "title": self.title,
            "system": self.system,
            "messages": [message.to_json() for message in self.messages],
        }

    @classmethod
    def from_json(cls, value: Any) -> "Conversation":
        """Read a conversation; drop unknown keys. ValueError, which the user may read, for anything else."""
        if not isinstance(value, Mapping):
            raise ValueError(f"conversation is a {type(value).__name__}; expected a JSON object")
        if value.get("format", FORMAT) != FORMAT or value.get("version", VERSION) != VERSION:
            found = f"{value.get('format')!r:.50}, version {value.get('version')!r:.20}"
            raise ValueError(f"format is {found}; expected {FORMAT!r}, version {VERSION}")
        messages = _list(value, "messages", "conversation", MAX_MESSAGES)
        conversation = cls(
            id=identifier(value, "id") or new_id(),
            title=_text(value, "title")[:200],
            system=_text(value, "system"),
            messages=[_message(index, message) for index, message in enumerate(messages)],
        )
        characters = len(conversation.system) + sum(message.characters for message in conversation.messages)
        if characters > MAX_CHARACTERS:
            raise ValueError(f"conversation has {characters:,} characters; expected at most {MAX_CHARACTERS:,}")
        return conversation

    def replace(self, place: int, messages: list[Message]) -> None:
        """Put these messages in place of the turn at `place` and all that follow, which become a branch."""
        tail, new = self.messages[place:], messages[0]
        if any(not message.error for message in tail[1:]):  # there is an answer to keep
            others, at = tail[0].branches, tail[0].branch
            tail[0].branches, tail[0].branch = [], 0
            new.branches = [*others[:at], tail, *others[at:]]
            new.branch = len(new.branches)
        else:
            new.branches, new.branch = tail[0].branches, tail[0].branch
        self.messages[place:] = messages

    def name(self) -> str:
        """Make a title from the first question."""
        first = next((message for message in self.messages if message.role == "user"), None)
        text = (first.content.strip() or "".join(file["name"] for file in first.files[:1])) if first else ""
        # A pasted text is long, and the question stands below it, in the last line.
        words = " ".join((text if len(text) < 300 else text.splitlines()[-1]).split())
        return words[:57] + "…" if len(words) > 58 else words or "New chat"

    def for_model(self) -> list[dict[str, Any]]:
        """Return the messages in the format of OpenAI's API, without failed answers."""
        system = [{"role": "system", "content": self.system}] if self.system.strip() else []
        return system + [each for message in self.messages if not message.error for each in _for_model(message)]


def _for_model(message: Message) -> list[dict[str, Any]]:
    """A turn, with the functions that were called before an answer and their results."""
    turns: list[dict[str, Any]] = []
    for number, call in enumerate(message.calls):
        named = {"id": str(number), "type": "function", "function": {key: call[key] for key in ("name", "arguments")}}
        turns.append({"role": "assistant", "content": "", "tool_calls": [named]})
        turns.append({"role": "tool", "tool_call_id": str(number), "content": call["result"]})
    if message.role == "user" or message.content or not message.calls:
        turns.append({"role": message.role, "content": with_files(message)})
    return turns


def with_files(message: Message) -> str:
    """Put the message's text after its files, in DeepSeek's published template."""
    blocks = [
        f"[file name]: {file['name']}\n[file content begin]\n{file['text']}\n[file content end]\n"
        for file in message.files
    ]
    return "".join(blocks) + message.content


def _message(index: int, value: Any, depth: int = 0) -> Message:
    name = f"messages[{index}]"
    if depth > MAX_DEPTH:
        raise ValueError(f"{name} is a branch within {depth} others; expected at most {MAX_DEPTH}")
    if not isinstance(value, Mapping) or value.get("role") not in ("user", "assistant"):
        raise ValueError(f"{name} is {value!r:.50}; expected a message of role user or assistant")
    numbers = value.get("numbers", {})
    branches = [
        [_message(place, each, depth + 1) for place, each in enumerate(branch)]
        for branch in _list(value, "branches", name, MAX_MESSAGES)
        if isinstance(branch, list) and branch
    ]
    place = value.get("branch", 0)
    return Message(
        role=value["role"],
        id=identifier(value, "id"),
        branches=branches,
        branch=place if isinstance(place, int) and 0 <= place <= len(branches) else 0,
        calls=[
            {key: _text(call, key, f"{name}.calls") for key in ("name", "arguments", "result")}
            for call in _list(value, "calls", name)
            if isinstance(call, Mapping)
        ],
        content=_text(value, "content", name),
        files=[_file(file, name) for file in _list(value, "files", name)],
        reasoning=_text(value, "reasoning", name),
        numbers={
            key: number
            for key, number in (numbers.items() if isinstance(numbers, Mapping) else ())
            if key in _NUMBERS and isinstance(number, int | float) and not isinstance(number, bool)
        },
        finish=_text(value, "finish", name)[:20],
        error=_text(value, "error", name)[:500],
        run=identifier(value, "run"),
    )


def _file(value: Any, message: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{message}.files holds a {type(value).__name__}; expected objects with name and text")
    tokens = value.get("tokens")
    name = " ".join(_text(value, "name", message).split())[:100] or "file.txt"
    return {"name": name, "text": _text(value, "text", message), "tokens": tokens if isinstance(tokens, int) else 0}


def identifier(value: Mapping[str, Any], key: str) -> str:
    """The id that a value holds; "" if it holds none."""
    found = value.get(key, "")
    return found if isinstance(found, str) and _ID.fullmatch(found) else ""


def _text(value: Mapping[str, Any], key: str, owner: str = "conversation") -> str:
    text = value.get(key, "")
    if not isinstance(text, str):
        raise ValueError(f"{owner}.{key} is a {type(text).__name__}; expected text")
    return text


def _list(value: Mapping[str, Any], key: str, owner: str, most: int = MAX_FILES) -> list[Any]:
    items = value.get(key, [])
    if not isinstance(items, list) or len(items) > most:
        size = f"a list of {len(items)}" if isinstance(items, list) else f"a {type(items).__name__}"
        raise ValueError(f"{owner}.{key} is {size}; expected a list of at most {most}")
    return items
