"""The commands of the chat in the terminal: a table from which they are carried out, completed and listed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .chat_session import SETTINGS, ChatSession

FILE = "FILE"  # an argument that is completed as a path
ENDS = ("/exit", "/quit", "/bye")
RETRY = "/retry"
HELP = "/help"


@dataclass(frozen=True)
class ChatCommand:
    """A command: how it is written, what it does, and the function that returns what to say when it is done.

    The function may raise ValueError or OSError; it has changed nothing then.
    """

    name: str
    argument: str
    help: str
    run: Callable[[ChatSession, str], str]
    choices: tuple[str, ...] = ()  # for completion


def _save(session: ChatSession, argument: str) -> str:
    path = _path("/save", argument)
    return f"{session.save(path)} messages saved in {path}."


def _load(session: ChatSession, argument: str) -> str:
    path = _path("/load", argument)
    return f"{session.load(path)} messages loaded from {path}."


def _inspect(session: ChatSession, argument: str) -> str:
    path = _path("/inspect", argument)
    session.inspect(path)
    return f"What DSA selected for the latest answer is in {path}."


def _undo(session: ChatSession, argument: str) -> str:
    session.undo()
    return f"The last question is taken back; {len(session.messages)} messages are left."


def _clear(session: ChatSession, argument: str) -> str:
    session.clear()
    return "Forgotten."


def _system(session: ChatSession, argument: str) -> str:
    if argument:
        session.set_system(None if argument == "off" else argument)
        return "There is no system message now." if argument == "off" else "The system message is set."
    return f"The system message is: {session.system}" if session.system is not None else "There is no system message."


def _think(session: ChatSession, argument: str) -> str:
    if argument not in ("", "on", "off"):
        raise ValueError(f"/think is {argument}; expected on or off")
    session.thinking = argument == "on" if argument else not session.thinking
    return f"Answers {'begin with' if session.thinking else 'come without'} the model's reasoning."


def _set(session: ChatSession, argument: str) -> str:
    if not argument:
        return "\n".join(f"{name} {value if value not in (None, ()) else 'none'}" for name, value in session.settings())
    name, _, value = argument.partition(" ")
    if not value.strip():
        raise ValueError(f"/set {name} has no value; expected a name and a value, as in /set temperature 0.6")
    session.set(name, value.strip())
    return f"{name} is {value.strip()}."


def _retry(session: ChatSession, argument: str) -> str:
    raise AssertionError("the loop answers")


def _help(session: ChatSession, argument: str) -> str:
    return help_text()


def _exit(session: ChatSession, argument: str) -> str:
    raise AssertionError("the loop ends")


COMMANDS = {
    command.name: command
    for command in (
        ChatCommand(RETRY, "", "answer the last question once more", _retry),
        ChatCommand("/undo", "", "take back the last question and its answer", _undo),
        ChatCommand("/clear", "", "forget the conversation", _clear),
        ChatCommand("/system", "TEXT", "set the system message; off removes it, nothing shows it", _system, ("off",)),
        ChatCommand("/think", "[on|off]", "let the model reason before it answers", _think, ("on", "off")),
        ChatCommand("/set", "[NAME VALUE]", "change a setting such as temperature; alone: show all", _set, SETTINGS),
        ChatCommand("/save", FILE, "write the conversation to a file, as JSON", _save),
        ChatCommand("/load", FILE, "go on with a conversation that /save has written", _load),
        ChatCommand("/inspect", FILE, "write what DSA selected for the last answer: .html, .json", _inspect),
        ChatCommand(HELP, "", "show this list", _help),
        ChatCommand("/exit", "", "leave (so does Ctrl-D)", _exit),
    )
}


def help_text() -> str:
    width = max(len(f"{each.name} {each.argument}") for each in COMMANDS.values()) + 2
    rows = [f"{f'{each.name} {each.argument}':{width}}{each.help}" for each in COMMANDS.values()]
    ways = (
        'What is pasted is one message, and so are lines between """ and """.',
        "A line that ends in \\ goes on in the next one.",
        "Ctrl-C stops an answer. Tab completes, arrow keys fetch earlier lines.",
    )
    return "\n".join([*rows, *ways])


def parse_command(message: str) -> tuple[str, str] | None:
    """(name, argument) of a message that is a command; None for any other.

    Several lines are a command only if they begin with the name of one: a pasted text may begin with a slash.
    """
    name, _, argument = message.partition(" ")
    if not message.startswith("/") or ("\n" in message and name.split("\n")[0] not in COMMANDS):
        return None
    return name, argument.strip()


def completions(text: str) -> Iterator[str]:
    """What may stand in the place of the last word of an unfinished command; files are not among it."""
    *before, word = text.split(" ")
    if not before:
        yield from (name for name in COMMANDS if name.startswith(word))
    elif len(before) == 1 and before[0] in COMMANDS:
        yield from (choice for choice in COMMANDS[before[0]].choices if choice.startswith(word))


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise ValueError(f"{command} needs a file name")
    return Path(argument).expanduser()
