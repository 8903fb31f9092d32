"""Text as commands lay it out in a terminal."""

import shutil
import textwrap


def wrapped(text: str, indent: int = 4) -> list[str]:
    """The text in lines of the terminal's width, each with so many spaces before it. A path is never cut."""
    space, width = " " * indent, shutil.get_terminal_size().columns
    wrapper = textwrap.TextWrapper(width, space, space, break_on_hyphens=False, break_long_words=False)
    return wrapper.wrap(text)


def size_text(count: int) -> str:
    """Bytes in GiB or MiB."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"
