"""Files that commands write whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file, or leave an existing one as it was. OSError names the file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def check_place(option: str, path: Path) -> None:
    """ValueError if no file can be written at `path`, so that it is known before the work and not after it."""
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"{option} is {path}; expected a file name, and this is a folder")
    if not folder.is_dir():
        raise ValueError(f"{option} is {path}; expected a file in an existing folder, and there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} is {path}; expected a file that may be written")
