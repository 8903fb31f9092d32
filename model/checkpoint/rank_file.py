"""Writes one rank's file of a converted checkpoint, from its first byte to its last."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash

from ..errors import CheckpointError
from ..parallel.plan import Plan, ShardSlice
from ..weight_map import TensorSpec, scale_parameter
from .converted import FusedParameter, fused_parameters
from .hashes import TensorHashes, piece_rows, row_chunks
from .load import narrow
from .locate import TensorSource
from .prefetch import DTYPES, RowChunk, read_ahead


def write_rank_file(
    path: Path,
    plan: Plan,
    sources: list[TensorSource],
    advance: Callable[[int], None],
    hashes: TensorHashes | None = None,
) -> dict[str, Any]:
    """Write a rank's parameters to `path` in their stored dtypes. Returns the file's size and its tensors' hashes.

    hashes: those of the source, which are verified. advance: called with the bytes of each row chunk.
    """
    by_place = {_place(source.shard.spec): source for source in sources}
    writers: list[_TensorWriter] = []
    for fused in fused_parameters(plan):
        writers += _writers(fused, [by_place[_place(shard.spec)] for shard in fused.shards])
    header, offset = {}, 0
    for writer in writers:
        header[writer.name] = {
            "dtype": writer.dtype,
            "shape": writer.shape,
            "data_offsets": [offset, offset + writer.size],
        }
        offset += writer.size
    encoded = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for size in read_ahead((chunk for writer in writers for chunk in writer.work(file)), hashes):
            advance(size)
        file.flush()
        os.fsync(file.fileno())
        return {"size": file.tell(), "tensors": {writer.name: " ".join(writer.pieces) for writer in writers}}


def _place(spec: TensorSpec) -> tuple[str | None, int | None, int]:
    """A tensor's place in the model, which is unique within a rank."""
    return spec.parameter, spec.expert, spec.row


def _writers(fused: FusedParameter, parts: list[TensorSource]) -> Iterator["_TensorWriter"]:
    """The writer of a parameter, and that of its scales if it has any."""
    dtype = parts[0].weight.dtype
    for part in parts:
        if part.weight.dtype != dtype:
            problem = f"dtype is {part.weight.dtype}; expected {dtype}, that of the other tensors of {fused.name}"
            raise CheckpointError(part.weight.file, problem)
    yield _TensorWriter(fused.name, fused.shape(), parts, False)
    if parts[0].scale is not None:
        yield _TensorWriter(scale_parameter(fused.name), fused.shape(True), parts, True)


class _TensorWriter:
    """Writes one tensor of a rank's file."""

    def __init__(self, name: str, shape: tuple[int, ...], parts: list[TensorSource], scales: bool) -> None:
        self.name, self.shape = name, shape
        self._parts, self._scales = parts, scales
        self.dtype = "F32" if scales else parts[0].weight.dtype
        self.size = prod(shape) * DTYPES[self.dtype].itemsize
        self.pieces: list[str] = []  # "bytes:hash" of each, which begin anew with each part
        self._piece, self._size, self._left = xxhash.xxh3_128(), 0, 0
        self._file: BinaryIO | None = None

    def work(self, file: BinaryIO) -> Iterator[RowChunk]:
        """The row chunks to read, in order. Using one appends it to `file`."""
        self._file = file
        for part in self._parts:
            kept = part.shard.kept
            if self._scales:
                assert part.scale is not None
                stored, kept = part.scale, kept and kept.of_scales()
            else:
                stored = part.weight
            first, last = (0, stored.shape[0]) if kept is None or kept.dim else (kept.start, kept.stop)
            columns = kept if kept is not None and kept.dim else None
            for start, stop in row_chunks(stored, first, last):
                yield RowChunk(stored, start, stop, partial(self._write, columns, last - start))

    def _write(self, columns: ShardSlice | None, rows_left: int, rows: torch.Tensor) -> None:
        """Append rows of a part, of which `rows_left` are still to come, these included."""
        assert self._file is not None
        if columns is not None:
            rows = narrow(rows, columns)
        data = rows.contiguous().view(torch.uint8).numpy().reshape(-1).data
        self._file.write(data)
        row_bytes = len(data) // rows.shape[0]
        while len(data):
            if not self._left:
                self._left = self._size = min(piece_rows(row_bytes), rows_left) * row_bytes
            piece = data[: self._left]
            self._piece.update(piece)
            self._left -= len(piece)
            rows_left -= len(piece) // row_bytes
            data = data[len(piece) :]
            if not self._left:
                self.pieces.append(f"{self._size}:{self._piece.hexdigest()}")
                self._piece.reset()
