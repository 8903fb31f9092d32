"""Errors that the user can correct, each in one line."""

from ...kernels.errors import ArgumentError

_LONGEST = 500  # characters of an unexpected error's text: PyTorch's may go on for paragraphs


class TokenizerError(ValueError):
    """A checkpoint's tokenizer cannot be used."""


class MessageError(ValueError):
    """A conversation cannot be encoded. The text names the message, its value and what is expected."""

    def __init__(self, text: str, index: int | None = None) -> None:
        """index: of the message at fault in the conversation as its caller knows it; `text` goes on after the message's name."""
        super().__init__(text if index is None else f"messages[{index}]{text}")
        self.text, self.index = text, index


class TooManyTokens(ValueError):
    """A text has more tokens than its caller can use."""

    def __init__(self, count: int, at_most: int) -> None:
        super().__init__(f"text has {count} tokens; expected at most {at_most}")
        self.count = count


def check_text(name: str, text: str) -> None:
    """Raise ArgumentError for a text that UTF-8 cannot write, from broken JSON or a terminal: tokenizers raise TypeError for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(name, "half of a surrogate pair", "Unicode text", "holds") from None


def describe_error(error: BaseException) -> str:
    """Describe an error for a user, in one line.

    ValueError: its text. OSError: the file's name and what is wrong with it, without the system's number. Any other type: its
    name and the beginning of its text. An error without a text: the name of its type.
    """
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    text = " ".join(text.split())
    if not text:
        return type(error).__name__
    return text if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {text[:_LONGEST]}"
