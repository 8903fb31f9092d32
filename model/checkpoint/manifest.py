"""Manifests: the hashes of everything that a checkpoint's directory holds, checked while it is loaded.

A checkpoint in the Hugging Face layout has one if `deepseek-v32 manifest DIRECTORY` was run, which should be right after the
download; a converted one always has one. Both are JSON objects with the keys

    format    which of the two it is, with its version
    hash      "xxh3-128"
    files     {file: {"size": bytes, "tensors": {tensor: "bytes:hash bytes:hash …"}}}, the pieces of each tensor in order
    others    {file: hash} of the configuration, tokenizer, generation settings and chat template

The manifest of a converted checkpoint also has `ranks` and `source` (see conversion.py).

Pieces are hashed instead of whole tensors, so that a rank that reads some rows of a tensor can check them, and several threads
can hash one tensor. XXH3 is ten times as fast as SHA-256 on a CPU with SHA instructions (13 and 1.5 GB/s on one core of a Xeon), so
checking a file costs little compared with reading it. Hashes find accidents: anyone who can write the checkpoint can also write its
manifest.
"""

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from ..config import FP8_BLOCK
from ..errors import CheckpointError, short_repr
from .files import write_json
from .safetensors import INDEX, StoredTensor, is_plain, parse_file, read_header, read_headers

HASH = "xxh3-128"
_PIECE_BYTES = 2**22
_THREADS = 4

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


def digest(data: Any) -> str:
    """The hash of a bytes-like object."""
    return xxhash.xxh3_128_hexdigest(data)


def piece_rows(row_bytes: int) -> int:
    """Return the rows of a piece: whole scale blocks, about 4 MB in all unless one block is larger."""
    return max(_PIECE_BYTES // max(row_bytes, 1) // FP8_BLOCK, 1) * FP8_BLOCK


def row_chunks(tensor: StoredTensor, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Divide rows [first, last) of a tensor where its pieces end."""
    step = piece_rows(tensor.row_bytes)
    while first < last:
        stop = min((first // step + 1) * step, last)
        yield first, stop
        first = stop


@dataclass(frozen=True)
class Piece:
    """A piece of a stored tensor, and its expected hash."""

    name: str  # of the tensor
    start: int  # in the file
    stop: int
    hash: str

    def check(self, file: Path, found: str, manifest: str) -> None:
        """Raise CheckpointError, with the way out, for another hash."""
        if found != self.hash:
            problem = (
                f"tensor {short_repr(self.name)}: the hash of bytes {self.start} to {self.stop} of the file is {found}; expected "
                f"{self.hash}, as in {manifest}: the file has changed, so fetch it again"
            )
            raise CheckpointError(file, problem)


class TensorHashes:
    """The hashes of a checkpoint's tensors, parsed when they are needed: the released model has 234,128 pieces."""

    def __init__(self, manifest: Path) -> None:
        self.manifest = manifest
        self._texts: dict[tuple[Path, str], tuple[StoredTensor, Any]] = {}
        self._pieces: dict[tuple[Path, str], list[Piece]] = {}

    def add(self, tensors: Mapping[str, StoredTensor], texts: Mapping[str, Any]) -> None:
        """Add the hashes of one file's tensors, as the manifest writes them."""
        for name, tensor in tensors.items():
            self._texts[tensor.file, name] = tensor, texts[name]

    def pieces(self, file: Path, name: str) -> list[Piece]:
        """A tensor's pieces in order. Raises CheckpointError unless they are well-formed and make up the tensor."""
        found = self._pieces.get((file, name))
        if found is None:
            found = self._pieces[file, name] = self._parse(*self._texts[file, name])
        return found

    def _parse(self, tensor: StoredTensor, text: Any) -> list[Piece]:
        pieces, start = [], tensor.offset
        try:
            for size, expected in (each.split(":") for each in text.split()):
                if int(size) < 1:
                    raise ValueError
                pieces.append(Piece(tensor.name, start, start + int(size), expected))
                start += int(size)
        except (AttributeError, ValueError):
            problem = (
                f"hashes of tensor {short_repr(tensor.name)} are {short_repr(text)}; expected bytes:hash of each piece"
            )
            raise CheckpointError(self.manifest, problem) from None
        if start != tensor.offset + tensor.size:
            problem = f"hashes of tensor {short_repr(tensor.name)} are of {start - tensor.offset} bytes"
            raise CheckpointError(self.manifest, f"{problem}; expected {tensor.size}, as in {tensor.file.name}")
        return pieces

    def check(self, tensor: StoredTensor, start: int, data: memoryview) -> None:
        """Check the pieces that share bytes with `data`, a part of a tensor that begins at byte `start` of its file.

        Reads the missing bytes of a piece that begins before the data or ends after it. Raises CheckpointError for another hash.
        """
        pieces, stop = self.pieces(tensor.file, tensor.name), start + len(data)
        first = bisect_right(pieces, start, key=lambda piece: piece.start) - 1
        for piece in pieces[first:]:
            if piece.start >= stop:
                break
            if start <= piece.start and piece.stop <= stop:
                found = digest(data[piece.start - start : piece.stop - start])
            else:
                state = xxhash.xxh3_128()
                state.update(read_bytes(tensor.file, piece.start, start))
                state.update(data[max(piece.start - start, 0) : piece.stop - start])
                state.update(read_bytes(tensor.file, stop, piece.stop))
                found = state.hexdigest()
            piece.check(tensor.file, found, self.manifest.name)


def read_bytes(file: Path, start: int, stop: int) -> bytearray:
    """Bytes [start, stop) of a file; none if the range is empty. Raises CheckpointError if they cannot be read."""
    data = bytearray(max(stop - start, 0))
    read_into(file, start, memoryview(data))
    return data


def identify(status: os.stat_result) -> tuple[int, int, int]:
    """Return what changes if a file is replaced, or written."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def read_into(file: Path, start: int, data: memoryview, identity: tuple[int, int, int] | None = None) -> None:
    """Fill `data` from byte `start` of a file. Raises CheckpointError if it cannot be read, or no longer has this identity."""
    if not data:
        return
    try:
        # The file is opened for each read: a checkpoint may have more files than a process may hold open.
        with FileIO(file) as opened:
            if identity not in (None, identify(os.fstat(opened.fileno()))):
                raise CheckpointError(file, "has changed since it was loaded; expected it as it was: start again")
            while data:  # one call returns at most 2 GiB
                count = os.preadv(opened.fileno(), [data], start)
                if not count:
                    problem = f"ends before byte {start + 1}; expected the length that it had when it was checked"
                    raise CheckpointError(file, problem)
                start, data = start + count, data[count:]
    except OSError as error:
        raise CheckpointError(file, f"can no longer be read ({error.strerror})") from error


def hash_ranges(ranges: Sequence[tuple[Path, int, int]], progress: Progress | None) -> Generator[str, None, None]:
    """Read byte ranges [start, stop) of files with a few threads, and yield their hashes in order.

    Close it: an exception would keep it alive, and it may end on one of its own threads, which cannot join itself.
    """

    def one(file: Path, start: int, stop: int) -> str:
        return digest(read_bytes(file, start, stop))

    pending, rest = deque[Future[str]](), iter(ranges)
    total, done = sum(stop - start for _, start, stop in ranges), 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as pool:
        try:
            for _, start, stop in ranges:
                pending.extend(pool.submit(one, *each) for each in islice(rest, _THREADS + 1 - len(pending)))
                found = pending.popleft().result()
                done += stop - start
                if progress is not None:
                    progress(done, total)
                yield found
        finally:
            pool.shutdown(cancel_futures=True)


PLAIN = "model.safetensors.manifest.json"  # of a checkpoint in the Hugging Face layout
PLAIN_FORMAT = "deepseek-v32 manifest, version 1"
CONVERTED = "manifest.json"
# Version 1 gave each rank a block of neighbouring experts; version 2 had one SHA-256 for each tensor, which loading did not check.
CONVERTED_FORMAT = "deepseek-v32 converted checkpoint, version 3"

# Files other than weights that this program reads.
SETTINGS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_VOCABULARIES = ("*.model", "*.tiktoken", "vocab.json", "vocab.txt", "merges.txt")


@dataclass(frozen=True)
class FileHashes:
    """A manifest's entry of one file of weights."""

    size: int
    tensors: dict[str, Any]  # "bytes:hash bytes:hash …", as TensorHashes takes them


@dataclass(frozen=True)
class Manifest:
    """A manifest that has been read and has the right form."""

    path: Path
    files: dict[str, FileHashes]
    others: dict[str, str]
    values: dict[str, Any]  # the whole object

    @property
    def directory(self) -> Path:
        return self.path.parent

    def check_others(self) -> None:
        """Raise CheckpointError for a file other than weights that has changed, is missing, or was added."""
        present = [name for name in SETTINGS if (self.directory / name).exists()]
        for name in (*self.others, *(name for name in present if name not in self.others)):
            found, expected = hash_file(self.directory / name), self.others.get(name, "no such file")
            if found != expected:
                problem = f"its hash is {found}; expected {expected}, as in {self.path.name}"
                raise CheckpointError(self.directory / name, f"{problem}: {self._way_out()}")

    def check_tensors(self, file: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
        """Return the hashes of a file's tensors. Raises CheckpointError if its size or tensor names differ from the manifest."""
        entry = self.files.get(file.name)
        if entry is None:
            names = short_repr(", ".join(self.files), 200)
            raise CheckpointError(file, f"is not in {self.path.name}; expected one of {names}: {self._way_out()}")
        size = file.stat().st_size
        if size != entry.size:
            problem = f"size is {size} bytes; expected the {entry.size} in {self.path.name}"
            raise CheckpointError(file, f"{problem}: {self._way_out()}")
        for name in sorted(tensors.keys() ^ entry.tensors.keys()):
            where = "is here, but not" if name in tensors else "is not here, but"
            problem = f"tensor {short_repr(name)} {where} in {self.path.name}; expected the file as it was then"
            raise CheckpointError(file, f"{problem}: {self._way_out()}")
        return entry.tensors

    def _way_out(self) -> str:
        if self.path.name == CONVERTED:
            return "convert again"
        return (
            f"restore it or, if it is meant to be so, run deepseek-v32 manifest {short_repr(str(self.directory), 200)}"
        )


def find_manifest(directory: Path) -> Manifest | None:
    """Read the manifest of a checkpoint of either layout; None if a checkpoint in the Hugging Face layout has none."""
    if is_plain(directory):
        path = directory / PLAIN
        if not path.exists() and not path.is_symlink():  # a dangling link is refused
            return None
        return _read(path, PLAIN_FORMAT, "make it again with deepseek-v32 manifest")
    return read_converted_manifest(directory)


def read_converted_manifest(directory: Path) -> Manifest:
    """Read the manifest of a converted checkpoint. Raises CheckpointError unless it has the form that convert writes."""
    manifest = _read(directory / CONVERTED, CONVERTED_FORMAT, "convert again")
    if type(manifest.values.get("ranks")) is not int:
        raise CheckpointError(
            manifest.path, f"ranks is {short_repr(manifest.values.get('ranks'))}; expected an integer"
        )
    return manifest


def plain_hashes(directory: Path, stored: Mapping[str, StoredTensor]) -> TensorHashes | None:
    """Check the settings of a checkpoint in the Hugging Face layout, and return its hashes; None if it has no manifest."""
    manifest = find_manifest(directory)
    if manifest is None:
        return None
    manifest.check_others()
    hashes = TensorHashes(manifest.path)
    by_file = _by_file(stored)
    for name in manifest.files:
        if directory / name not in by_file:
            raise CheckpointError(manifest.path, f"names {short_repr(name)}; expected only files of this checkpoint")
    for file, tensors in by_file.items():
        hashes.add(tensors, manifest.check_tensors(file, tensors))
    return hashes


def write_manifest(directory: Path, progress: Progress | None = None) -> int:
    """Read a checkpoint in the Hugging Face layout and write its manifest. Returns the number of its tensors.

    Raises CheckpointError if its files cannot be read, or if it is a converted checkpoint.
    """
    if (directory / CONVERTED).exists() and not is_plain(directory):
        raise CheckpointError(
            directory, f"is a converted checkpoint, which has its {CONVERTED}; expected the Hugging Face layout"
        )
    stored = read_headers(directory)
    by_file = _by_file(stored)
    ranges = [
        (tensor, *bounds) for tensors in by_file.values() for tensor in tensors.values() for bounds in pieces_of(tensor)
    ]
    hashes: dict[str, list[str]] = {name: [] for name in stored}
    with closing(hash_ranges([(tensor.file, start, stop) for tensor, start, stop in ranges], progress)) as found:
        for (tensor, start, stop), each in zip(ranges, found, strict=True):
            hashes[tensor.name].append(f"{stop - start}:{each}")
    files = {
        file.name: {"size": file.stat().st_size, "tensors": {name: " ".join(hashes[name]) for name in tensors}}
        for file, tensors in by_file.items()
    }
    patterns = (*SETTINGS, INDEX, *_VOCABULARIES)
    others = {path.name for pattern in patterns for path in directory.glob(pattern) if path.is_file()}
    settings = {name: hash_file(directory / name) for name in sorted(others)}
    write_json(directory / PLAIN, {"format": PLAIN_FORMAT, "hash": HASH, "files": files, "others": settings})
    return len(stored)


def verify(directory: Path, progress: Progress | None = None) -> int:
    """Read every byte of a checkpoint of either layout. Returns the number of tensors.

    Raises CheckpointError for the first difference from its manifest, or if it has none.
    """
    manifest = find_manifest(directory)
    if manifest is None:
        raise CheckpointError(directory / PLAIN, "no such file; expected a manifest, which deepseek-v32 manifest makes")
    manifest.check_others()
    hashes, names = TensorHashes(manifest.path), []
    for file in (directory / name for name in manifest.files):
        tensors = dict(read_header(file))
        hashes.add(tensors, manifest.check_tensors(file, tensors))
        names += [(file, name) for name in tensors]
    pieces = [(file, piece) for file, name in names for piece in hashes.pieces(file, name)]
    with closing(hash_ranges([(file, piece.start, piece.stop) for file, piece in pieces], progress)) as found:
        for (file, piece), each in zip(pieces, found, strict=True):
            piece.check(file, each, manifest.path.name)
    return len(names)


def pieces_of(tensor: StoredTensor) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of a tensor's pieces in its file."""
    rows = tensor.shape[0] if tensor.shape else 1
    for first, last in row_chunks(tensor, 0, rows if tensor.size else 0):
        yield tensor.offset + first * tensor.row_bytes, tensor.offset + last * tensor.row_bytes


def hash_file(path: Path) -> str:
    """The hash of a small file. Raises CheckpointError if it cannot be read."""
    if path.exists() and not path.is_file():
        raise CheckpointError(path, "is not a regular file; expected one")
    try:
        return digest(path.read_bytes())
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error


def _by_file(stored: Mapping[str, StoredTensor]) -> dict[Path, dict[str, StoredTensor]]:
    files: dict[Path, dict[str, StoredTensor]] = {}
    for name, tensor in stored.items():
        files.setdefault(tensor.file, {})[name] = tensor
    return files


def _read(path: Path, version: str, way_out: str) -> Manifest:
    """Read a manifest of the given format. Raises CheckpointError, with the way out, for anything else."""
    values = parse_file(path, "the manifest")
    for key, expected in (("format", version), ("hash", HASH)):
        if values.get(key) != expected:
            raise CheckpointError(path, f"{key} is {short_repr(values.get(key))}; expected {expected!r}: {way_out}")
    files, others = values.get("files"), values.get("others")
    for key, value in (("files", files), ("others", others)):
        if not isinstance(value, dict):
            raise CheckpointError(path, f"{key} is {short_repr(value)}; expected an object by file name: {way_out}")
        for name in value:
            if name != Path(name).name or not name.isprintable():
                raise CheckpointError(path, f"{key} names {short_repr(name)}; expected plain file names: {way_out}")
    assert isinstance(files, dict) and isinstance(others, dict)
    for name, value in others.items():
        if not isinstance(value, str):
            raise CheckpointError(path, f"others.{short_repr(name)} is {short_repr(value)}; expected a hash: {way_out}")
    for name, value in files.items():
        size, tensors = (value.get("size"), value.get("tensors")) if isinstance(value, dict) else (None, None)
        if type(size) is not int or not isinstance(tensors, dict):
            problem = f"entry of {short_repr(name)} is {short_repr(value)}; expected its size and tensors"
            raise CheckpointError(path, f"{problem}: {way_out}")
    return Manifest(
        path, {name: FileHashes(each["size"], each["tensors"]) for name, each in files.items()}, others, values
    )
