"""A conversation as the browser keeps it, exports it and sends it back: JSON from outside, checked before anything uses it."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = "deepseek-v32 conversation"
VERSION = 1
MOST_MESSAGES = 2_000
MOST_CHARACTERS = 4_000_000  # of all texts together; 160K tokens are about 600,000

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBERS = (
    *("time_to_first_token", "tokens_per_second", "cached_tokens", "prompt_tokens", "completion_tokens"),
    *("thinking_seconds", "kept_share", "seed"),
)


def new_id() -> str:
    return secrets.token_urlsafe(12)


@dataclass
class Message:
    """One turn. The fields after `content` belong to answers, but for `files`."""

    role: str  # user or assistant
    content: str
    files: list[dict[str, Any]] = field(default_factory=list)  # of a user: {name, text, tokens}
    reasoning: str = ""
    numbers: dict[str, float] = field(default_factory=dict)  # what was measured, by the names of _NUMBERS
    finish: str = ""  # the finish reason; "" while the answer grows
    error: str = ""  # one line, shown in place of what is missing
    run: str = ""  # where the selection of this answer can be had, if it was recorded

    def to_json(self) -> dict[str, Any]:
        whole = vars(self)
        return {key: value for key, value in whole.items() if value or key in ("role", "content")}


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
        """ValueError, in words for the user, for anything else than a conversation; unknown keys are dropped."""
        if not isinstance(value, Mapping):
            raise ValueError("not a conversation: a JSON object is wanted")
        if value.get("format", FORMAT) != FORMAT or value.get("version", VERSION) != VERSION:
            raise ValueError(f"not a conversation of this app: format {FORMAT!r}, version {VERSION}, is wanted")
        messages = value.get("messages", [])
        if not isinstance(messages, list) or len(messages) > MOST_MESSAGES:
            raise ValueError(f"messages: a list of at most {MOST_MESSAGES} is wanted")
        identifier = value.get("id")
        conversation = cls(
            id=identifier if isinstance(identifier, str) and _ID.fullmatch(identifier) else new_id(),
            title=_text(value, "title")[:200],
            system=_text(value, "system"),
            messages=[_message(place, message) for place, message in enumerate(messages)],
        )
        if conversation.characters > MOST_CHARACTERS:
            raise ValueError(
                f"the conversation is too long: {conversation.characters:,} of {MOST_CHARACTERS:,} characters"
            )
        return conversation

    @property
    def characters(self) -> int:
        files = sum(len(file["text"]) for message in self.messages for file in message.files)
        return len(self.system) + sum(len(m.content) + len(m.reasoning) for m in self.messages) + files

    def name(self) -> str:
        """A title from the first thing said."""
        first = next((message for message in self.messages if message.role == "user"), None)
        text = (first.content.strip() or first.files[0]["name"]) if first else ""
        words = " ".join(
            (text if len(text) < 300 else text.splitlines()[-1]).split()
        )  # below a pasted text stands the question
        return words[:57] + "…" if len(words) > 58 else words or "New chat"

    def for_model(self) -> list[dict[str, Any]]:
        """Messages in OpenAI's shape."""
        system = [{"role": "system", "content": self.system}] if self.system.strip() else []
        return system + [
            {"role": message.role, "content": with_files(message)} for message in self.messages if not message.error
        ]


def with_files(message: Message) -> str:
    """DeepSeek's published template for files, the question last."""
    blocks = [
        f"[file name]: {file['name']}\n[file content begin]\n{file['text']}\n[file content end]\n"
        for file in message.files
    ]
    return "".join(blocks) + message.content


def _message(place: int, value: Any) -> Message:
    where = f"messages[{place}]"
    if not isinstance(value, Mapping) or value.get("role") not in ("user", "assistant"):
        raise ValueError(f"{where}: a message of role user or assistant is wanted")
    numbers = value.get("numbers", {})
    run = value.get("run", "")
    return Message(
        role=value["role"],
        content=_text(value, "content", where),
        files=[_file(file, where) for file in _list(value, "files", where)],
        reasoning=_text(value, "reasoning", where),
        numbers={
            key: number
            for key, number in (numbers.items() if isinstance(numbers, Mapping) else ())
            if key in _NUMBERS and isinstance(number, int | float) and not isinstance(number, bool)
        },
        finish=_text(value, "finish", where)[:20],
        error=_text(value, "error", where)[:500],
        run=run if isinstance(run, str) and _ID.fullmatch(run) else "",
    )


def _file(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}.files: objects of name and text are wanted")
    tokens = value.get("tokens")
    name = " ".join(_text(value, "name", where).split())[:100] or "file.txt"
    return {"name": name, "text": _text(value, "text", where), "tokens": tokens if isinstance(tokens, int) else 0}


def _text(value: Mapping[str, Any], key: str, where: str = "conversation") -> str:
    text = value.get(key, "")
    if not isinstance(text, str):
        raise ValueError(f"{where}.{key}: text is wanted, this is {type(text).__name__}")
    return text


def _list(value: Mapping[str, Any], key: str, where: str) -> list[Any]:
    items = value.get(key, [])
    if not isinstance(items, list) or len(items) > 50:
        raise ValueError(f"{where}.{key}: a list of at most 50 is wanted")
    return items
