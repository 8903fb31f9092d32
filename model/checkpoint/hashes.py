"""Hashes of stored bytes, by which damage is noticed: XXH3-128 of each piece of a tensor of about 4 MB.

Pieces, not whole tensors, so that a rank that reads some rows of a tensor can check them, and several threads can hash one tensor.
XXH3 is ten times as fast as SHA-256 on a CPU with SHA instructions (13 and 1.5 GB/s on one core of a Xeon), so that checking a
file costs little beside reading it. It finds accidents; whoever can write the checkpoint can write its manifest, too.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import xxhash

from ..config import FP8_BLOCK
from ..errors import CheckpointError, short_repr
from .safetensors import StoredTensor

HASH = "xxh3-128"
_PIECE_BYTES = 2**22
_THREADS = 4


def digest(data: Any) -> str:
    """The hash of a bytes-like object."""
    return xxhash.xxh3_128_hexdigest(data)


def piece_rows(row_bytes: int) -> int:
    """The rows of a piece: whole scale blocks, of about 4 MB if they are shorter than that."""
    return max(_PIECE_BYTES // max(row_bytes, 1) // FP8_BLOCK, 1) * FP8_BLOCK


def row_chunks(tensor: StoredTensor, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of a tensor in chunks that begin and end with its pieces, except perhaps at the ends."""
    step = piece_rows(tensor.row_bytes)
    while first < last:
        stop = min((first // step + 1) * step, last)
        yield first, stop
        first = stop


@dataclass(frozen=True)
class Piece:
    """A piece of a stored tensor, and the hash that it has to have."""

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
    """The hashes of a checkpoint's tensors. Their texts are parsed when they are needed: the released model has 234,128 pieces."""

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

        The rest of a piece that begins before or ends after the data is read. Raises CheckpointError for another hash.
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


def read_into(file: Path, start: int, data: memoryview) -> None:
    """Fill `data` from byte `start` of a file. Raises CheckpointError if it cannot be read."""
    if not data:
        return
    try:
        # The file is opened for each read: a checkpoint may have more files than a process may hold open.
        with FileIO(file) as opened:
            opened.seek(start)
            done = 0
            while done < len(data):  # one call returns at most 2 GiB
                count = opened.readinto(data[done:])
                if not count:
                    problem = (
                        f"ends before byte {start + done + 1}; expected the length that it had when it was checked"
                    )
                    raise CheckpointError(file, problem)
                done += count
    except OSError as error:
        raise CheckpointError(file, f"can no longer be read ({error.strerror})") from error


def hash_ranges(ranges: Iterator[tuple[Path, int, int]]) -> Generator[str, None, None]:
    """The hashes of byte ranges [start, stop) of files, in order, read and computed by a few threads."""

    def one(file: Path, start: int, stop: int) -> str:
        return digest(read_bytes(file, start, stop))

    pending: deque[Future[str]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as pool:
        try:
            for each in ranges:
                if len(pending) > _THREADS:
                    yield pending.popleft().result()
                pending.append(pool.submit(one, *each))
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
