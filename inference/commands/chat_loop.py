"""The interactive chat of `deepseek-v32 generate`."""

import sys
from typing import Any

from ..text.errors import describe_error
from .chat_commands import COMMANDS, ENDS, HELP, RETRY, parse_command
from .chat_input import ChatInput, Interrupted
from .chat_session import ChatSession, Message
from .layout import wrapped
from .terminal import dim, show_stream, statistics, visible

LEAVE = "/exit or Ctrl-D leaves."
FAREWELLS = ("exit", "quit", "q", "bye")  # messages of people who want to leave, as other programs let them


class ChatLoop:
    """Reads messages, answers them and carries out commands until /exit or the end of the input."""

    def __init__(self, session: ChatSession, source: ChatInput, hint: str = "") -> None:
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
        if name not in COMMANDS:
            _note(f'{name} is no command. /help lists them; """ begins a message that starts with a slash.')
            return
        try:
            if argument and not COMMANDS[name].argument:
                raise ValueError(f"what follows {name} is {argument:.100}; expected nothing")
            if name == RETRY:
                self._answer(self._session.retried())
                return
            said = COMMANDS[name].run(self._session, argument)
        except (ValueError, OSError) as error:
            _note(f"Not done: {describe_error(error)}")
        except KeyboardInterrupt:
            if self._session.llm.tensor_parallel_size > 1:  # the other ranks are in the middle of a step
                raise
            _note("Stopped.")
        else:
            if name == HELP:
                print(said)
            else:
                _note(said)

    def _answer(self, messages: list[Message]) -> None:
        """Answer a conversation, and again when the functions that the model calls have returned.

        A message that is refused, and one whose answer fails, is not kept.
        """
        session, waiting = self._session, True
        while waiting:
            try:
                with self._input.answering():
                    prompt = session.prompt(messages)
                    answer, completion = show_stream(
                        session.llm, prompt, session.params, session.thinking, sys.stdout, tools=session.tools
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
        """What the functions return that an answer calls, as the user types it; none if the user does not."""
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
