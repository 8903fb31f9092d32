"""Files that commands write: whole or not at all, or line by line so that a later run resumes them."""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...model.checkpoint.files import writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a draft, which replaces `path` at the end of the block. OSError names `path`."""
    if path.exists() and not path.is_file():  # a pipe or a device
        yield path
        return
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        draft.unlink(missing_ok=True)


def read_small(path: Path) -> bytes:
    """Read a file, a pipe or a device. ValueError, which names it, if that has more than 64 MiB, or no end."""
    with open(path, "rb") as file:
        content = file.read((64 << 20) + 1)
    if len(content) > 64 << 20:
        raise ValueError(f"{path} has more than 64 MiB; expected a smaller file")
    return content


def read_utf8(path: Path) -> str:
    """Read a text file. ValueError, which names it, for another encoding."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); expected UTF-8") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file that are not blank, with their numbers."""
    return ((number, line) for number, line in enumerate(read_utf8(path).split("\n"), 1) if line.strip())


def check_place(option: str, path: Path) -> None:
    """Raise ValueError before the work begins if no file can be written at `path`."""
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"{option} is {path}; expected a file name, and this is a folder")
    if not folder.is_dir():
        raise ValueError(f"{option} is {path}; expected a file in an existing folder, and there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} is {path}; expected a file that may be written")


# The commands' lines begin with these bytes. An incomplete last line with another beginning is another program's and stays.
LINE_START = b'{"id": '


class JsonlLog:
    """A locked file that grows by whole lines, each added in one write.

    Opening it resumes an earlier run: the incomplete last line of a killed run is cut off, and `done` holds the keys of the
    finished lines. Closing it removes an empty file. A pipe or a device is only written to.
    """

    def __init__(
        self,
        path: Path,
        key_if_done: Callable[[Any], str | None],
        *,
        drop_failed: bool = False,
        ensure_ascii: bool = False,
    ) -> None:
        """key_if_done: the key of a line's value, None if the line failed; KeyError or TypeError for a line of another kind.
        drop_failed: remove the failed lines, so that each key has at most one line.

        ValueError, and the file stays unchanged, if another run has it or if it holds anything else.
        """
        self._path, self._key_if_done, self._ensure_ascii = path, key_if_done, ensure_ascii
        if path.exists() and not path.is_file():  # a pipe or a device, which has no earlier answers, or a folder
            self._file, self.done = os.open(path, os.O_WRONLY), set()
            return
        self._file = _open(path)
        try:
            lock(self._file, path)
            with open(self._file, "rb", closefd=False) as reader:
                content = reader.read()
            end = content.rfind(b"\n") + 1
            lines, keys = content[:end].splitlines(keepends=True), list[str | None]()
            foreign = f"{path}, {{}}: not an answer of an earlier run; name another output file"
            for number, line in enumerate(lines, start=1):
                try:
                    keys.append(key_if_done(json.loads(line)))
                except (ValueError, KeyError, TypeError):
                    raise ValueError(foreign.format(f"line {number}")) from None
            if not content[end:].startswith(LINE_START[: len(content) - end]):
                raise ValueError(foreign.format("last line"))
            if drop_failed and None in keys:
                self._replace(b"".join(line for line, key in zip(lines, keys, strict=True) if key is not None))
            elif end < len(content):
                os.ftruncate(self._file, end)
        except BaseException:
            os.close(self._file)
            raise
        self.done = {key for key in keys if key is not None}

    def append(self, record: dict[str, Any]) -> None:
        """Add a line, in one write unless the system takes only a part of it. OSError if the disk is full."""
        line = json.dumps(record, ensure_ascii=self._ensure_ascii) + "\n"
        rest = memoryview(line.encode("utf-8", "replace"))
        with writing(self._path):
            while rest:  # after a short write, the next one says what is wrong
                rest = rest[os.write(self._file, rest) :]
        if (key := self._key_if_done(record)) is not None:
            self.done.add(key)

    @contextmanager
    def holding(self, keys: Collection[str]) -> Iterator[None]:
        """Close the file at the end of the block. After Ctrl-C, say how many of the `keys` it holds."""
        try:
            yield
        except KeyboardInterrupt:
            done = sum(key in self.done for key in keys)
            print(f"{done} of {len(keys)} answers are in {self._path}; the same command goes on there", file=sys.stderr)
            raise
        finally:
            self.close()

    def close(self) -> None:
        status = os.fstat(self._file)
        # lstat: a link stays, because it is the user's, or the system's such as /dev/stdout.
        is_file = self._path.is_file() and os.path.samestat(status, self._path.lstat())
        if status.st_size == 0 and is_file:
            self._path.unlink()
        os.close(self._file)

    def _replace(self, content: bytes) -> None:
        """Replace the file by a new one with this content, which is locked from the start."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        new = _open(draft, os.O_TRUNC)
        try:
            lock(new, draft)
            with writing(self._path), open(new, "wb", closefd=False) as writer:
                writer.write(content)
            draft.replace(self._path)
        except BaseException:
            draft.unlink(missing_ok=True)
            os.close(new)
            raise
        os.close(self._file)
        self._file = new


def lock(file: int, path: Path) -> None:
    """Lock an open file until it is closed; `path` is its name. ValueError if another run has it."""
    import fcntl  # absent on Windows, where the other commands work

    taken = ValueError(f"{path}: another run is writing to it; wait for its end, or name another file")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise taken from None
    except OSError:
        return  # some network file systems have no locks
    if not os.path.samestat(os.fstat(file), os.stat(path)):
        raise taken  # another run has replaced the file since it was opened here


def _open(path: Path, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags, 0o666)
