"""Files that commands write: one run at a time, whole or not at all."""

import os
from pathlib import Path
from typing import Any


def lock(file: Any, path: Path) -> None:
    """Keep other runs from an open file until it is closed. ValueError if one of them has it; `path` is its name."""
    import fcntl

    taken = ValueError(f"{path}: another run is writing to it; wait for its end, or name another file")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise taken from None
    except OSError:
        return  # some network file systems have no locks
    if not os.path.samestat(os.stat(file if isinstance(file, int) else file.fileno()), os.stat(path)):
        raise taken  # and has put another file in its place since this one was opened


def remove_if_empty(file: int, path: Path) -> None:
    """Leave nothing of an output that nothing was written to. `file` is open and locked, so that no other run has it."""
    status = os.fstat(file)
    if status.st_size == 0 and path.is_file() and os.path.samestat(status, path.lstat()):  # not what a link points to
        path.unlink()


def write_whole(path: Path, text: str) -> None:
    """Write a file, or leave what was there as it was. OSError names the file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def check_place(option: str, path: Path) -> None:
    """ValueError if no file can be written there: better now than after the answer."""
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"{option} {path}: this is a folder; a file's name is wanted")
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} {path}: it cannot be written")
