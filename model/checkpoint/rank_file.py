"""Writes one rank's file of a converted checkpoint, from its first byte to its last."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ..errors import CheckpointError
from ..parallel.plan import Plan, ShardSlice
from ..weight_map import TensorSpec, scale_parameter
from .converted import FusedParameter, fused_parameters
from .load import narrow
from .locate import TensorSource
from .prefetch import DTYPES, RowChunk, read_ahead

_CHUNK_BYTES = 2**22


def write_rank_file(
    path: Path, plan: Plan, sources: list[TensorSource], advance: Callable[[int], None]
) -> dict[str, Any]:
    """Write a rank's parameters to `path` in their stored dtypes. Returns the file's size and its tensors' hashes.

    advance: called with the bytes of each row chunk.
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
        for size in read_ahead(chunk for writer in writers for chunk in writer.work(file)):
            advance(size)
        file.flush()
        os.fsync(file.fileno())
        return {"size": file.tell(), "tensors": {writer.name: writer.digest.hexdigest() for writer in writers}}


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
        self.digest = hashlib.sha256()
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
            step = max(_CHUNK_BYTES * stored.shape[0] // max(stored.size, 1), 1)
            for start in range(first, last, step):
                yield RowChunk(stored, start, min(start + step, last), partial(self._write, columns))

    def _write(self, columns: ShardSlice | None, rows: torch.Tensor) -> None:
        assert self._file is not None
        if columns is not None:
            rows = narrow(rows, columns)
        data = rows.contiguous().view(torch.uint8).numpy().reshape(-1).data
        self.digest.update(data)
        self._file.write(data)
