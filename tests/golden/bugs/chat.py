"""The chat format and its parsers: what is written before the answer, and what is read out of it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from deepseek_v32.inference.text.answer import AssistantMessage
from deepseek_v32.inference.text.tokenizer import BOS, END_THINK, THINK, Special

from .bug import ALL, HTTP, Bug
from .patching import replaced

PIECES, PARSER = "inference.server.api.conversations.conversation_pieces", "inference.server.api.chat.parse_assistant"
Pieces = list[str | Special]


def _pieces_changed(change: Callable[[Pieces], Pieces]) -> AbstractContextManager[None]:
    return replaced(PIECES, lambda right: lambda *arguments: change(right(*arguments)))


def bos_twice() -> AbstractContextManager[None]:
    return _pieces_changed(lambda pieces: [Special(BOS), *pieces])


def bos_missing() -> AbstractContextManager[None]:
    return _pieces_changed(lambda pieces: pieces[1:])


def mark_missing() -> AbstractContextManager[None]:
    return _pieces_changed(lambda pieces: pieces[:-1])


def thinking_ignored() -> AbstractContextManager[None]:
    return replaced(
        PIECES, lambda right: lambda turns, tokenizer, thinking, *rest: right(turns, tokenizer, False, *rest)
    )


def history_thinks() -> AbstractContextManager[None]:
    def change(right: Any) -> Any:
        def pieces(turns: Sequence[Any], tokenizer: Any, *rest: Any) -> Pieces:
            found = right(turns, tokenizer, *rest)
            for turn in turns:
                if turn["role"] == "assistant" and turn.get("reasoning_content"):
                    at = found.index(turn["content"])
                    found[at - 1 : at] = [Special(THINK), turn["reasoning_content"], Special(END_THINK)]
            return found

        return pieces

    return replaced(PIECES, change)


def tools_before_system() -> AbstractContextManager[None]:
    def change(right: Any) -> Any:
        def pieces(turns: Sequence[Any], tokenizer: Any, thinking: bool, tools: Any, *rest: Any) -> Pieces:
            first = [{"role": "system", "content": "", "tools": tools}] if tools else []
            return right([*first, *turns], tokenizer, thinking, None, *rest)

        return pieces

    return replaced(PIECES, change)


def tools_missing() -> AbstractContextManager[None]:
    def change(right: Any) -> Any:
        return lambda turns, tokenizer, thinking, tools, *rest: right(turns, tokenizer, thinking, None, *rest)

    return replaced(PIECES, change)


def calls_in_content() -> AbstractContextManager[None]:
    def parse(text: str, thinking: bool, *_: Any) -> AssistantMessage:
        thought, mark, rest = text.partition(END_THINK)
        return AssistantMessage(rest if mark else text, thought if mark else None)

    return replaced(PARSER, lambda _: parse)


def reasoning_in_content() -> AbstractContextManager[None]:
    def change(right: Any) -> Any:
        return lambda text, thinking, *rest: AssistantMessage(text) if thinking else right(text, thinking, *rest)

    return replaced(PARSER, change)


def content_in_reasoning() -> AbstractContextManager[None]:
    """The parser believes that every answer begins with reasoning."""
    return replaced(PARSER, lambda right: lambda text, thinking, *rest: right(text, True, *rest))


def _bug(name: str, seed: Callable[[], AbstractContextManager[None]]) -> Bug:
    return Bug(name, frozenset({HTTP}), ALL, None, seed)


BUGS = (
    _bug("chat-bos-twice", bos_twice),
    _bug("chat-bos-missing", bos_missing),
    _bug("chat-thinking-mark-missing", mark_missing),
    _bug("chat-thinking-ignored", thinking_ignored),
    _bug("chat-history-thinks", history_thinks),
    _bug("chat-tools-before-system", tools_before_system),
    _bug("chat-tools-missing", tools_missing),
    _bug("chat-calls-in-content", calls_in_content),
    _bug("chat-reasoning-in-content", reasoning_in_content),
    _bug("chat-content-in-reasoning", content_in_reasoning),
)
