"""Messages typed or pasted in a terminal: line editing, history, completion, and several lines as one message."""

import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent

from ..text.errors import describe_error
from .chat_commands import COMMANDS, FILE, completions
from .chat_history import FileHistory, history_path
from .chat_input import CONTINUED, PROMPT, Interrupted, is_open, without_quotes
from .terminal import dim

# Around a paste the terminal then sends marks, by which it is told from typing: xterm's "bracketed paste".
BRACKETED_PASTE, PLAIN_PASTE = "\x1b[?2004h", "\x1b[?2004l"


class TerminalInput:
    """Reads messages with prompt_toolkit. What is pasted is one message, whatever it holds; Alt-Enter begins a new line."""

    def __init__(self, keep_history: bool) -> None:
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=CONTINUED,
            key_bindings=_bindings(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            history=_history() if keep_history else InMemoryHistory(),
            enable_open_in_editor=True,
        )
        self._results: PromptSession[str] = PromptSession(multiline=True, key_bindings=_bindings())

    def read(self, prompt: str = PROMPT) -> str | None:
        """As ChatInput."""
        session = self._session if prompt == PROMPT else self._results
        try:
            return without_quotes(session.prompt(FormattedText([("", prompt)])))
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """What is typed or pasted meanwhile stays invisible and waits for the next message. Ctrl-C works as ever."""
        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
        quiet = termios.tcgetattr(file)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        quiet[3] |= termios.NOFLSH  # so that Ctrl-C does not drop what waits
        termios.tcsetattr(file, termios.TCSANOW, quiet)
        print(BRACKETED_PASTE, end="", flush=True)
        try:
            yield
        finally:
            print(PLAIN_PASTE, end="", flush=True)
            termios.tcsetattr(file, termios.TCSANOW, before)


class CommandCompleter(Completer):
    """Completes commands, the names of settings, and files."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """As prompt_toolkit's Completer."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, argument = text.partition(" ")
        if space and name in COMMANDS and COMMANDS[name].argument == FILE:
            yield from self._paths.get_completions(Document(argument, len(argument)), complete_event)
            return
        word = text.rpartition(" ")[2]
        for choice in completions(text):
            yield Completion(choice + " " if choice in COMMANDS and COMMANDS[choice].argument else choice, -len(word))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.newline(copy_margin=False)
        elif buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def alt_enter(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings


def _history() -> History:
    path = history_path()
    try:
        return FileHistory(path)
    except OSError as error:
        print(dim(f"No history is kept: {describe_error(error)}", sys.stderr), file=sys.stderr)
        return InMemoryHistory()
