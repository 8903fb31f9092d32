"""The chat of `deepseek-v32 generate`: reads messages from a terminal or a pipe, and answers them."""

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

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
from .chat_session import COMMANDS, FILE, ChatSession, Message, help_text, parse_command
from .files import replacing
from .terminal import dim, show_stream, statistics, visible, wrapped

PROMPT, CONTINUED, QUOTES = ">>> ", "... ", '"""'
ENDS = ("/exit", "/quit", "/bye")
FAREWELLS = ("exit", "quit", "q", "bye")  # messages of people who want to leave, as other programs let them
LEAVE = "/exit or Ctrl-D leaves."
# The terminal puts marks around a paste after this, which tell it from typing: xterm's "bracketed paste".
BRACKETED_PASTE, PLAIN_PASTE = "\x1b[?2004h", "\x1b[?2004l"
MOST_ENTRIES = 1000  # of the history
LONGEST_ENTRY = 20_000  # characters: a pasted book would make every later start slow
_SURROGATES = re.compile("[\ud800-\udfff]")


class Interrupted(Exception):
    """Ctrl-C, while nothing was being answered."""


class ChatLoop:
    """Reads messages, answers them and carries out commands until /exit or the end of the input."""

    def __init__(self, session: ChatSession, source: "LineInput", hint: str = "") -> None:
        """hint: what to type, for a terminal."""
        self._session = session
        self._input = source
        self._hint = hint

    def run(self) -> None:
        if sys.stdin.isatty():
            _note(f"{self._hint}\n/help lists the commands.".strip())
        while True:
            try:
                message = self._input.read()
            except Interrupted:
                _note(LEAVE)
                continue
            if message is None:
                return
            command = parse_command(message)
            if command is None:
                if message.strip():
                    self._answer([*self._session.messages, {"role": "user", "content": message}])
                if message.strip().lower() in FAREWELLS:
                    _note(LEAVE)
            elif command[0] in ENDS:
                return
            else:
                self._execute(*command)

    def _execute(self, name: str, argument: str) -> None:
        """Carry out a command other than /exit."""
        command = COMMANDS.get(name)
        try:
            if command is None:
                _note(f'{name} is not a command. /help lists them; """ begins a message that starts with a slash.')
            elif argument and not command.argument:
                raise ValueError(f"what follows {name} is {argument:.100}; expected nothing")
            elif name == "/help":
                print(help_text())
            elif command.run is None:
                self._answer(self._session.retried())
            else:
                _note(command.run(self._session, argument))
        except (ValueError, OSError) as error:
            _note(f"Not done: {describe_error(error)}")
        except KeyboardInterrupt:
            if self._session.llm.tensor_parallel_size > 1:  # the other ranks are in the middle of a step
                raise
            _note("Stopped.")

    def _answer(self, messages: list[Message]) -> None:
        """Answer a conversation, and again with the results of the functions that it calls. Only what succeeds is kept."""
        session, waiting = self._session, True
        while waiting:
            try:
                with self._input.answering():
                    prompt = session.prompt(messages)
                    answer, completion = show_stream(
                        session.llm,
                        prompt,
                        session.params.for_answer(session.thinking),
                        session.thinking,
                        sys.stdout,
                        tools=session.tools,
                    )
            except ValueError as error:
                _note(f"{error} (/clear starts afresh)")
                session.note_failure(messages)
                return
            _note(statistics(completion))
            if completion.finish_reason == "error":
                session.note_failure(messages)
                return
            results = self._ask_for_results(session.keep(messages, answer, prompt, completion))
            messages, waiting = [*session.messages, *results], bool(results)

    def _ask_for_results(self, answer: Message) -> list[Message]:
        """Ask the user what the functions return that an answer calls. Returns nothing if the user does not say."""
        results: list[dict[str, Any]] = []
        for call in answer.get("tool_calls", ()):
            name = visible(call["function"]["name"], sys.stdout)
            try:
                result = self._input.read(f"{name} returns: ")
            except Interrupted:
                result = None
            if result is None:
                _note("The call is not answered. /undo takes the question back.")
                return []
            results.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return results


def _note(text: str) -> None:
    sys.stdout.flush()
    if sys.stderr.isatty():
        text = "\n".join(part for line in visible(text, sys.stderr).splitlines() for part in wrapped(line, 0))
    print(dim(text, sys.stderr), file=sys.stderr, flush=True)


def make_input(keep_history: bool) -> "LineInput":
    """Choose where messages come from: with line editing if both input and output are a terminal."""
    return TerminalInput(keep_history) if sys.stdin.isatty() and sys.stdout.isatty() else LineInput()


def is_open(text: str) -> bool:
    '''Tell whether a message that begins with """ still lacks the closing one.'''
    return text.lstrip().startswith(QUOTES) and text.count(QUOTES) == 1


def without_quotes(text: str) -> str:
    '''Leave out the """ around a message. A program that begins with a docstring is kept as it is.'''
    # Bytes that are not UTF-8 come as surrogates, which no file can hold.
    text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    block = text.strip()
    if block.startswith(QUOTES) and block.endswith(QUOTES) and block.count(QUOTES) == 2:
        return block[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text.strip("\n").rstrip()


class LineInput:
    """Reads standard input line by line. A line that ends in a backslash continues in the next one."""

    def __init__(self) -> None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # bytes that are not UTF-8 do not end the chat

    def read(self, prompt: str = PROMPT) -> str | None:
        '''Read the next message, without the """ around it; None at the end of the input. Interrupted after Ctrl-C.'''
        text, continued = "", False
        while True:
            try:
                line = input(CONTINUED if continued or text else prompt)
            except EOFError:
                print()
                return without_quotes(text) if text.strip() else None
            except KeyboardInterrupt:
                print()
                raise Interrupted from None
            text += line
            continued = text.endswith("\\") and not is_open(text)
            if continued:
                text = text[:-1] + "\n"
            elif is_open(text):
                text += "\n"
            else:
                return without_quotes(text)

    def answering(self) -> AbstractContextManager[None]:
        """Enter this context for the time of an answer, in which nothing is read."""
        return nullcontext()


class TerminalInput(LineInput):
    """Reads messages with prompt_toolkit. A paste is one message, whatever it holds; Alt-Enter begins a new line."""

    def __init__(self, keep_history: bool) -> None:
        history: History = InMemoryHistory()
        try:
            history = FileHistory(history_path()) if keep_history else history
        except OSError as error:
            print(dim(f"No history is kept: {describe_error(error)}", sys.stderr), file=sys.stderr)
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=CONTINUED,
            key_bindings=_bindings(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            history=history,
            enable_open_in_editor=True,
        )
        self._results: PromptSession[str] = PromptSession(multiline=True, key_bindings=_bindings())

    def read(self, prompt: str = PROMPT) -> str | None:
        session = self._session if prompt == PROMPT else self._results
        try:
            return without_quotes(session.prompt(FormattedText([("", prompt)])))
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Keep what is typed or pasted meanwhile invisible, for the next message. Ctrl-C works as always."""
        import termios  # absent on Windows, where a chat can be piped

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
        *before, word = document.text_before_cursor.split(" ")
        command = COMMANDS.get(before[0]) if before else None
        if not document.text.startswith("/") or "\n" in document.text_before_cursor:
            return
        if command is not None and command.argument == FILE:
            path = " ".join([*before[1:], word])
            yield from self._paths.get_completions(Document(path, len(path)), complete_event)
        elif not before:
            for name, each in COMMANDS.items():
                if name.startswith(word) and not name.endswith("!"):
                    yield Completion(f"{name} " if each.argument else name, -len(word))
        elif command is not None and len(before) == 1:
            yield from (Completion(each, -len(word)) for each in command.choices if each.startswith(word))


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


def history_path() -> Path:
    """The file in the XDG state directory, https://specifications.freedesktop.org/basedir-spec/latest/."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification says that a relative path is invalid and must be ignored.
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "deepseek-v32" / "history.jsonl"


class FileHistory(History):
    """A JSON text on each line, the latest last, readable only by its owner. Several chats may append to it."""

    def __init__(self, path: Path) -> None:
        """Make the file, or take it over. OSError if that is impossible."""
        super().__init__()
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(self._open())

    def load_history_strings(self) -> Iterable[str]:
        """Read the messages, the latest first, as prompt_toolkit expects."""
        lines = self._path.read_bytes().splitlines(keepends=True)
        if len(lines) > 2 * MOST_ENTRIES:
            lines = lines[-MOST_ENTRIES:]
            with replacing(self._path) as draft:
                draft.touch(0o600)
                draft.write_bytes(b"".join(lines))
        entries = []
        for line in lines[-MOST_ENTRIES:]:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut by a full disk, or written by another program
            if isinstance(entry, str):
                entries.append(entry)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Append a message. If it cannot be written, only this chat remembers it."""
        if len(string) > LONGEST_ENTRY:
            return
        try:
            with open(self._open(), "wb", buffering=0) as file:
                file.write(json.dumps(string).encode() + b"\n")
        except OSError:
            return

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(file, 0o600)  # also for a file that another program has made
        return file
