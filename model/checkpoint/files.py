"""Small files of a checkpoint: strict JSON from untrusted directories, atomic writes, and why a path is no checkpoint."""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LFS_START = b"version https://git-lfs"  # https://git-lfs.github.com/spec/v1
GET_IT = "a Git LFS pointer, not the file itself: get it with git lfs pull"
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")  # files that users give instead of their directory

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def no_directory(path: str | Path) -> str:
    """Explain why a path is no checkpoint directory, and what to do: a text that follows the path."""
    path = Path(path)
    if path.is_file():
        if path.suffix == ".gguf":
            return "is a GGUF file; expected a checkpoint directory in the Hugging Face layout: config.json and safetensors"
        return f"is a file; expected the checkpoint directory, which may be {str(path.parent)!r}"
    if path.is_symlink():
        return "is a link to nothing; expected a checkpoint directory"
    if _HUB_ID.fullmatch(str(path)):
        return (
            "is no directory here; expected a checkpoint directory. If it is a model of the Hugging Face hub, download it: "
            f"hf download {path} --local-dir {path.name}"
        )
    return "is no directory; expected an existing checkpoint directory"


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse the JSON object in UTF-8 `data`. Raises ValueError for anything else, and for keys that appear twice."""
    if data.startswith(LFS_START):
        raise ValueError(GET_IT)
    try:
        values = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(f"not valid JSON ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object but {type(values).__name__}")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"key {key[:80]!r} appears twice")
        values[key] = value
    return values


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the OSError of a full disk name the file that the block writes: Python's names none, or the file that is copied."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically: it is complete or absent, even after a power cut."""
    partial = path.with_name(path.name + ".partial")
    with writing(path), partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync(path.parent)


def sync(directory: Path) -> None:
    """Make renames in a directory survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
