"""Messages of a chat that come line by line, from a pipe or a terminal without the abilities that chat_terminal.py needs."""

import io
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

PROMPT, CONTINUED = ">>> ", "... "
_SURROGATES = re.compile("[\ud800-\udfff]")
QUOTES = '"""'


class Interrupted(Exception):
    """Ctrl-C, while nothing was being answered."""


class ChatInput(Protocol):
    """Where messages come from."""

    def read(self, prompt: str = PROMPT) -> str | None:
        '''The next message, without the """ around it; None at the end of the input. Interrupted after Ctrl-C.'''

    def answering(self) -> AbstractContextManager[None]:
        """Around the answer, while nothing is read."""


def is_open(text: str) -> bool:
    '''Whether a message that begins with """ still lacks the closing one.'''
    return text.lstrip().startswith(QUOTES) and text.count(QUOTES) == 1


def without_quotes(text: str) -> str:
    '''The message; the """ around it are left out. A program that begins with a docstring is kept as it is.'''
    # Bytes that are not UTF-8 come as surrogates, which no file can hold.
    text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    block = text.strip()
    if block.startswith(QUOTES) and block.endswith(QUOTES) and block.count(QUOTES) == 2:
        return block[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text.strip("\n").rstrip()


class LineInput:
    """Reads standard input. A line that ends in a backslash continues in the next one."""

    def __init__(self) -> None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # bytes that are not UTF-8 do not end the chat

    def read(self, prompt: str = PROMPT) -> str | None:
        """As ChatInput. What an end of the input cuts short is a message, too."""
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
        """As ChatInput."""
        return nullcontext()
