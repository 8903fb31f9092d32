"""The interactive chat of `deepseek-v32 generate`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.errors import describe_error
from .files import write_whole
from .terminal import dim, show_stream, statistics

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import SamplingParams

HELP = """\
/clear       forget the conversation
/save FILE   write the conversation to a file, as JSON
/help        show this list
/exit        leave (so does Ctrl-D)
A line that ends in \\ continues in the next one. Ctrl-C stops an answer."""


class ChatLoop:
    """Reads lines, answers messages and carries out commands until /exit or the end of the input."""

    def __init__(self, llm: "LLM", params: "SamplingParams", thinking: bool, system: str | None):
        self._llm = llm
        self._params = params
        self._thinking = thinking
        self._system = system
        self._messages: list[dict[str, Any]] = []
        self._clear()

    def run(self) -> None:
        if sys.stdin.isatty():
            import readline  # noqa: F401  importing it gives input() line editing and history

            _note("/help lists the commands.")
        while (line := self._read()) is not None:
            if line.startswith("/"):
                if self._execute(line):
                    return
            elif line:
                self._answer(line)

    def _read(self) -> str | None:
        """The next message; None at the end of the input."""
        lines: list[str] = []
        while True:
            try:
                lines.append(input("... " if lines else ">>> "))
            except EOFError:
                print()
                return None
            except KeyboardInterrupt:
                print()
                _note("/exit or Ctrl-D leaves.")
                lines.clear()
                continue
            if not lines[-1].endswith("\\"):
                return "\n".join(line.removesuffix("\\") for line in lines).strip()

    def _execute(self, line: str) -> bool:
        """Carry out a command. True for the one that ends the chat."""
        command, _, argument = line.partition(" ")
        match command:
            case "/exit" | "/quit":
                return True
            case "/clear":
                self._clear()
                _note("Forgotten.")
            case "/save":
                self._save(argument.strip())
            case "/help":
                print(HELP)
            case _:
                _note(f"{command} is no command. /help lists them.")
        return False

    def _clear(self) -> None:
        self._messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def _save(self, name: str) -> None:
        if not name:
            _note("/save needs a file name.")
            return
        path = Path(name).expanduser()
        try:
            write_whole(path, json.dumps(self._messages, ensure_ascii=False, indent=2) + "\n")
        except (OSError, ValueError) as error:
            _note(f"Not saved: {describe_error(error)}")
        else:
            _note(f"{len(self._messages)} messages saved in {path}.")

    def _answer(self, text: str) -> None:
        """Answer a message. A message that is refused or whose answer fails is not kept in the conversation."""
        messages = [*self._messages, {"role": "user", "content": text}]
        try:
            token_ids = self._llm.chat_token_ids(messages, thinking=self._thinking)
            answer, completion = show_stream(self._llm, token_ids, self._params, self._thinking, sys.stdout)
        except ValueError as error:
            _note(f"{error} (/clear starts afresh)")
            return
        _note(statistics(completion))
        if completion.finish_reason != "error":
            self._messages = [*messages, answer.to_message()]


def _note(text: str) -> None:
    sys.stdout.flush()
    print(dim(text, sys.stderr), file=sys.stderr, flush=True)
