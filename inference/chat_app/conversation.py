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
MAX_CHARACTERS = 4_000_000  # of all texts together; 160K tokens are about 600,000

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBERS = (
    *("time_to_first_token", "tokens_per_second", "cached_tokens", "prompt_tokens", "completion_tokens"),
    *("thinking_seconds", "kept_share", "seed", "read_tokens", "drafted_tokens"),
)


def new_id() -> str:
    return secrets.token_urlsafe(12)


@dataclass
class Message:
    """One turn. `files` belongs to questions, the fields after it to answers."""

    role: str  # user or assistant
    content: str
    files: list[dict[str, Any]] = field(default_factory=list)  # {name, text, tokens} each
    reasoning: str = ""
    numbers: dict[str, float] = field(default_factory=dict)  # measurements, by the names in _NUMBERS
    finish: str = ""  # the finish reason; "" while the answer grows
    error: str = ""  # one line, shown in place of the missing answer
    run: str = ""  # id of the answer's recording; "" if it was not recorded

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value or key in ("role", "content")}


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
        messages = value.get("messages", [])
        if not isinstance(messages, list) or len(messages) > MAX_MESSAGES:
            raise ValueError(f"messages is {_size(messages)}; expected a list of at most {MAX_MESSAGES}")
        identifier = value.get("id")
        conversation = cls(
            id=identifier if isinstance(identifier, str) and _ID.fullmatch(identifier) else new_id(),
            title=_text(value, "title")[:200],
            system=_text(value, "system"),
            messages=[_message(index, message) for index, message in enumerate(messages)],
        )
        if conversation.characters > MAX_CHARACTERS:
            raise ValueError(
                f"conversation has {conversation.characters:,} characters; expected at most {MAX_CHARACTERS:,}"
            )
        return conversation

    @property
    def characters(self) -> int:
        files = sum(len(file["text"]) for message in self.messages for file in message.files)
        return len(self.system) + sum(len(m.content) + len(m.reasoning) for m in self.messages) + files

    def name(self) -> str:
        """Make a title from the first question."""
        first = next((message for message in self.messages if message.role == "user"), None)
        text = (first.content.strip() or first.files[0]["name"]) if first else ""
        # A pasted text is long, and the question stands below it, in the last line.
        words = " ".join((text if len(text) < 300 else text.splitlines()[-1]).split())
        return words[:57] + "…" if len(words) > 58 else words or "New chat"

    def for_model(self) -> list[dict[str, Any]]:
        """Return the messages in the format of OpenAI's API, without failed answers."""
        system = [{"role": "system", "content": self.system}] if self.system.strip() else []
        return system + [
            {"role": message.role, "content": with_files(message)} for message in self.messages if not message.error
        ]


def with_files(message: Message) -> str:
    """Put the message's text after its files, in DeepSeek's published template."""
    blocks = [
        f"[file name]: {file['name']}\n[file content begin]\n{file['text']}\n[file content end]\n"
        for file in message.files
    ]
    return "".join(blocks) + message.content


def _message(index: int, value: Any) -> Message:
    name = f"messages[{index}]"
    if not isinstance(value, Mapping) or value.get("role") not in ("user", "assistant"):
        raise ValueError(f"{name} is {value!r:.50}; expected a message of role user or assistant")
    numbers = value.get("numbers", {})
    run = value.get("run", "")
    return Message(
        role=value["role"],
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
        run=run if isinstance(run, str) and _ID.fullmatch(run) else "",
    )


def _file(value: Any, message: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{message}.files holds a {type(value).__name__}; expected objects with name and text")
    tokens = value.get("tokens")
    name = " ".join(_text(value, "name", message).split())[:100] or "file.txt"
    return {"name": name, "text": _text(value, "text", message), "tokens": tokens if isinstance(tokens, int) else 0}


def _text(value: Mapping[str, Any], key: str, owner: str = "conversation") -> str:
    text = value.get(key, "")
    if not isinstance(text, str):
        raise ValueError(f"{owner}.{key} is a {type(text).__name__}; expected text")
    return text


def _list(value: Mapping[str, Any], key: str, owner: str) -> list[Any]:
    items = value.get(key, [])
    if not isinstance(items, list) or len(items) > MAX_FILES:
        raise ValueError(f"{owner}.{key} is {_size(items)}; expected a list of at most {MAX_FILES}")
    return items


def _size(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else f"a {type(value).__name__}"
