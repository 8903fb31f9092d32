"""Reads the headers of safetensors files: where each tensor lies, checked before any data is read.

Only headers are parsed, so nothing in a checkpoint is ever executed. The format: 8 bytes of little-endian header length, a JSON
header {name: {dtype, shape, data_offsets}}, then the data without gaps.
"""

import math
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, refuse, short_repr
from .files import GET_IT, LFS_START, no_directory, parse_object

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_MOST_NAMED = 10
_LARGEST_POINTER = 1024  # bytes, as the specification says
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library itself

# Bytes per element of every dtype in the format. Only some of them are accepted as weights.
_ITEM_SIZE = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F16": 2, "BF16": 2, "I16": 2}
_ITEM_SIZE |= {"U16": 2, "F32": 4, "I32": 4, "U32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's place on disk."""

    file: Path
    name: str  # in that file
    dtype: str  # in the format's spelling: "BF16", "F32", "F8_E4M3", …
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    size: int  # bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: of one index of the first axis."""
        return self.size // max(self.shape[0], 1) if self.shape else self.size


def is_plain(directory: Path) -> bool:
    """Return whether the directory has the Hugging Face layout."""
    return (directory / INDEX).exists() or (directory / SINGLE).exists()


def read_headers(directory: str | Path, refuse: Callable[[CheckpointError], None] = refuse) -> dict[str, StoredTensor]:
    """Read the headers of a checkpoint directory's tensors, from its single file or from the files that its index names.

    refuse: called with each problem of a file of weights. If it returns, the other files are read.

    Raises CheckpointError for anything that is missing, duplicate, truncated, overlapping, or not a safetensors file.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise CheckpointError(directory, no_directory(directory))
    index, single = directory / INDEX, directory / SINGLE
    if not _exists(index):
        if not _exists(single):
            raise CheckpointError(directory, f"holds no weights; expected {SINGLE} or {INDEX}")
        return dict(read_header(single))

    weight_map = _read_index(index)
    if SINGLE not in weight_map.values() and _exists(single):
        raise CheckpointError(single, f"exists next to {INDEX}, which does not name it; expected one of the two")
    tensors: dict[str, StoredTensor] = {}
    files = dict.fromkeys(weight_map.values())
    here = _downloaded(directory, list(files), refuse)
    for file in here:
        try:
            found = list(read_header(directory / file))
        except CheckpointError as error:
            refuse(error)
            here = [each for each in here if each != file]
            continue
        for name, tensor in found:
            if name in tensors:
                other = tensors[name].file.name
                problem = f"tensor {short_repr(name)} is also in {short_repr(other)}; expected it once"
                refuse(CheckpointError(tensor.file, problem))
            if weight_map.get(name) != file:
                place = f"in {short_repr(weight_map[name])}" if name in weight_map else "nowhere"
                problem = f"tensor {short_repr(name)} is here; expected it {place}, as in the index"
                refuse(CheckpointError(tensor.file, problem))
            tensors[name] = tensor
    for name, file in weight_map.items():
        if name not in tensors and file in here:
            problem = f"tensor {short_repr(name)} is not here; expected it, as in the index"
            refuse(CheckpointError(directory / file, problem))
    return tensors


def _downloaded(directory: Path, files: list[str], refuse: Callable[[CheckpointError], None]) -> list[str]:
    """Return the files that are present and not Git LFS pointers. The refusal of the others counts all and names ten."""
    absent = [file for file in files if not _exists(directory / file)]
    if absent:
        problem = f"{_some(absent, len(files))} missing; expected all that {INDEX} names"
        refuse(CheckpointError(directory, f"{problem}: download them"))
    pointers = [file for file in files if _is_pointer(directory / file)]
    if pointers:
        problem = f"{_some(pointers, len(files))} {'a Git LFS pointer' if len(pointers) == 1 else 'Git LFS pointers'}"
        refuse(CheckpointError(directory, f"{problem}; expected the weights themselves: get them with git lfs pull"))
    return [file for file in files if file not in {*absent, *pointers}]


def _some(names: list[str], count: int) -> str:
    shown = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return f"{len(names)} of {count} files of weights ({shown}) {'is' if len(names) == 1 else 'are'}"


def _is_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer. False for an unreadable file: reading its header says why."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_POINTER:
            return False
        with path.open("rb") as file:
            return file.read(len(LFS_START)) == LFS_START
    except OSError:
        return False


def _exists(path: Path) -> bool:
    try:
        path.lstat()  # finds a dangling link too, which opening then refuses
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CheckpointError(path, f"cannot be looked up ({_reason(error)})") from error
    return True


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200]


def _check_regular(path: Path) -> int:
    """Return a regular file's size. Follows links, because download caches consist of them, and never opens pipes or devices."""
    try:
        status = path.stat()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(path, f"cannot be opened ({_reason(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise CheckpointError(path, f"is {kind}; expected a file")
    return status.st_size


def _parse(path: Path, data: bytes, what: str) -> dict[str, Any]:
    try:
        return parse_object(data)
    except ValueError as error:
        raise CheckpointError(path, f"{what} is {error}; expected a JSON object") from error


def parse_file(path: Path, what: str) -> dict[str, Any]:
    """Parse the JSON object in a file. Raises CheckpointError if there is none."""
    _check_regular(path)
    try:
        return _parse(path, path.read_bytes(), what)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({_reason(error)})") from error


def _read_index(path: Path) -> dict[str, str]:
    weight_map = parse_file(path, "the index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            path, f"weight_map is {short_repr(weight_map)}; expected an object from tensor to file name"
        )
    for name, file in weight_map.items():
        plain = isinstance(file, str) and file == Path(file).name and "\\" not in file and file.isprintable()
        if not plain or not file.endswith(".safetensors"):
            expected = "the plain name of a .safetensors file in the same directory"
            raise CheckpointError(path, f"tensor {short_repr(name)} is in {short_repr(file)}; expected {expected}")
    return weight_map


def read_header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors of one file in the order of their data. CheckpointError unless it is a complete safetensors file."""
    size = _check_regular(path)
    try:
        with path.open("rb") as file:
            first = file.read(8)
            if first == LFS_START[:8]:
                raise CheckpointError(path, f"is {GET_IT}")
            length = int.from_bytes(first, "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                expected = f"8 bytes of header length, then at most {max(min(size - 8, _MAX_HEADER), 0)} of header"
                raise CheckpointError(
                    path, f"truncated or not safetensors: {size} bytes, header {length}; expected {expected}"
                )
            header = file.read(length)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({_reason(error)})") from error
    if not header.startswith(b"{"):
        raise CheckpointError(path, f"not safetensors: the header starts with {short_repr(header[:8])}; expected '{{'")

    start = 8 + length
    entries = _parse(path, header, "the header")
    entries.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry, start) for name, entry in entries.items()}
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].size)):
        if tensor.offset != end:
            problem = f"data begins at byte {tensor.offset - start}; expected {end - start}, right after its neighbour"
            raise CheckpointError(path, f"tensor {short_repr(name)}: {problem}")
        end += tensor.size
        yield name, tensor
    if end != size:
        kind = "truncated" if size < end else "longer than its header says"
        raise CheckpointError(path, f"{kind}: {size} bytes; expected {end}")


def _tensor(path: Path, name: str, entry: Any, start: int) -> StoredTensor:
    """Check one entry of the header by itself."""

    def wrong(what: str, value: Any, expected: str) -> CheckpointError:
        return CheckpointError(path, f"tensor {short_repr(name)}: {what} is {short_repr(value)}; expected {expected}")

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("header entry", entry, "dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_SIZE:
        raise wrong("dtype", dtype, "one of safetensors' dtypes")
    if not _naturals(shape):
        raise wrong("shape", shape, "a list of sizes")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("data_offsets", offsets, "two ascending byte positions")
    size = math.prod(shape) * _ITEM_SIZE[dtype]
    if offsets[1] - offsets[0] != size:
        raise wrong("data_offsets", offsets, f"{size} bytes for {dtype} {short_repr(shape)}")
    return StoredTensor(path, name, dtype, tuple(shape), start + offsets[0], size)


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)
