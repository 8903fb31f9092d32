"""The file with the messages that were typed in earlier chats."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

MOST_ENTRIES = 1000
LONGEST_ENTRY = 20_000  # characters: a pasted book would make every later start slow


def history_path() -> Path:
    """In the XDG state directory, https://specifications.freedesktop.org/basedir-spec/latest/."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification says that a relative path is invalid and to be ignored.
    return (
        (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "deepseek-v32" / "history.jsonl"
    )


class FileHistory(History):
    """A JSON text in each line, the latest last, readable by its owner alone. Several chats may append to it."""

    def __init__(self, path: Path) -> None:
        """OSError if the file can be neither made nor read."""
        super().__init__()
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(self._open())

    def load_history_strings(self) -> Iterable[str]:
        """The latest first, as prompt_toolkit expects."""
        lines = self._path.read_bytes().splitlines(keepends=True)
        if len(lines) > 2 * MOST_ENTRIES:
            lines = lines[-MOST_ENTRIES:]
            self._replace(b"".join(lines))
        entries = []
        for line in lines[-MOST_ENTRIES:]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut by a full disk, or written by somebody else
            if isinstance(entry, str):
                entries.append(entry)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Append a message. What cannot be written is remembered by this chat alone."""
        if len(string) > LONGEST_ENTRY:
            return
        try:
            file = self._open()
            try:
                os.write(file, json.dumps(string).encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            return

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(file, 0o600)  # also for a file that somebody else has made
        return file

    def _replace(self, content: bytes) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "wb") as writer:
            writer.write(content)
        draft.replace(self._path)
