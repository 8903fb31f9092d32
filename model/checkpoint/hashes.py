"""Hashes of stored bytes, by which damage is noticed: XXH3-128 of each piece of a tensor of about 4 MB.

Pieces, not whole tensors, so that a rank that reads some rows of a tensor can check them, and several threads can hash one tensor.
XXH3 is ten times as fast as SHA-256 on a CPU with SHA instructions (13 and 1.5 GB/s on one core of a Xeon), so that checking a
file costs little beside reading it. It finds accidents; whoever can write the checkpoint can write its manifest, too.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
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

Pieces = list[tuple[int, str]]  # of a tensor, in order: (bytes, hash in hexadecimal digits)


def digest(data: Any) -> str:
    """The hash of a bytes-like object."""
    return xxhash.xxh3_128(data).hexdigest()


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
    """The hashes of a checkpoint's tensors, by their place on disk."""

    def __init__(self, manifest: Path) -> None:
        self.manifest = manifest
        self._pieces: dict[Path, list[Piece]] = {}
        self._starts: dict[Path, list[int]] = {}

    def add(self, tensors: Mapping[str, StoredTensor], hashes: Mapping[str, Pieces]) -> None:
        """Add the hashes of one file's tensors. Raises CheckpointError unless their pieces make up the tensors."""
        found: list[Piece] = []
        for name, tensor in tensors.items():
            start = tensor.offset
            for size, expected in hashes[name]:
                found.append(Piece(name, start, start + size, expected))
                start += size
            if start != tensor.offset + tensor.size:
                problem = f"hashes of tensor {short_repr(name)} are of {start - tensor.offset} bytes"
                raise CheckpointError(self.manifest, f"{problem}; expected {tensor.size}, as in {tensor.file.name}")
        found.sort(key=lambda piece: piece.start)
        if found:
            [file] = {tensor.file for tensor in tensors.values()}
            self._pieces[file], self._starts[file] = found, [piece.start for piece in found]

    def of_file(self, file: Path) -> list[Piece]:
        """The pieces of a file's tensors, in the order of bytes."""
        return self._pieces.get(file, [])

    def of_range(self, file: Path, start: int, stop: int) -> list[Piece]:
        """The pieces that share bytes with [start, stop) of a file."""
        pieces = self.of_file(file)
        first = bisect_right(self._starts[file], start) - 1 if pieces else 0
        last = first
        while last < len(pieces) and pieces[last].start < stop:
            last += 1
        return pieces[max(first, 0) : last]

    def check(self, file: Path, start: int, data: memoryview) -> None:
        """Check the pieces that share bytes with `data`, which begins at byte `start` of a file. CheckpointError for another hash.

        The rest of a piece that begins before or ends after the data is read.
        """
        stop = start + len(data)
        for piece in self.of_range(file, start, stop):
            state = xxhash.xxh3_128()
            state.update(read_bytes(file, piece.start, min(start, piece.stop)))
            state.update(data[max(piece.start - start, 0) : piece.stop - start])
            state.update(read_bytes(file, max(stop, piece.start), piece.stop))
            piece.check(file, state.hexdigest(), self.manifest.name)


def read_bytes(file: Path, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of a file; none if the range is empty. Raises CheckpointError if they cannot be read."""
    if start >= stop:
        return b""
    data = bytearray(stop - start)
    read_into(file, start, memoryview(data))
    return bytes(data)


def read_into(file: Path, start: int, data: memoryview) -> None:
    """Fill `data` from byte `start` of a file. Raises CheckpointError if it cannot be read."""
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


def hash_ranges(ranges: Iterator[tuple[Path, int, int]]) -> Iterator[str]:
    """The hashes of byte ranges [start, stop) of files, in order, read and computed by a few threads."""

    def one(file: Path, start: int, stop: int) -> str:
        return digest(read_bytes(file, start, stop))

    pending: deque[Future[str]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as pool:
        try:
            for each in ranges:
                if len(pending) >= 2 * _THREADS:
                    yield pending.popleft().result()
                pending.append(pool.submit(one, *each))
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
