"""One rank's file of a converted checkpoint, written from its first byte to its last."""

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
from ..parallel.plan import Cut, Plan
from ..weight_map import scale_parameter
from .converted import Stack, stacks
from .load import keep
from .locate import Placement
from .prefetch import DTYPES, Rows, read_ahead

_BAND = 2**22  # bytes read at a time


def write_rank_file(
    path: Path, plan: Plan, placements: list[Placement], advance: Callable[[int], None]
) -> dict[str, Any]:
    """Write a rank's parameters to `path`, in the dtypes that they are stored in; returns its size and the tensors' hashes."""
    by_place = {
        (each.share.piece.parameter, each.share.piece.expert, each.share.piece.row): each for each in placements
    }
    writers: list[_Writer] = []
    for stack in stacks(plan):
        parts = [by_place[share.piece.parameter, share.piece.expert, share.piece.row] for share in stack.shares]
        writers += _writers(stack, parts)
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
        for size in read_ahead(rows for writer in writers for rows in writer.work(file)):
            advance(size)
        file.flush()
        os.fsync(file.fileno())
        return {"size": file.tell(), "tensors": {writer.name: writer.digest.hexdigest() for writer in writers}}


def _writers(stack: Stack, parts: list[Placement]) -> Iterator["_Writer"]:
    """Of a parameter, and of its scales if it has any."""
    dtypes = {part.weight.dtype for part in parts}
    if len(dtypes) > 1:
        odd = next(part.weight for part in parts if part.weight.dtype != parts[0].weight.dtype)
        raise CheckpointError(
            odd.file, f"holds {odd.dtype} where the rest of {stack.name} is {parts[0].weight.dtype}; wanted one dtype"
        )
    yield _Writer(stack.name, stack.shape(), parts, False)
    if parts[0].scale is not None:
        yield _Writer(scale_parameter(stack.name), stack.shape(True), parts, True)


class _Writer:
    """One tensor of a rank's file, written from its first byte to its last."""

    def __init__(self, name: str, shape: tuple[int, ...], parts: list[Placement], scales: bool) -> None:
        self.name, self.shape = name, shape
        self._parts, self._scales = parts, scales
        self.dtype = "F32" if scales else parts[0].weight.dtype
        self.size = prod(shape) * DTYPES[self.dtype].itemsize
        self.digest = hashlib.sha256()
        self._file: BinaryIO | None = None

    def work(self, file: BinaryIO) -> Iterator[Rows]:
        """What to read, in order."""
        self._file = file
        for part in self._parts:
            cut = part.share.cut
            if self._scales:
                assert part.scale is not None
                stored, cut = part.scale, cut and cut.in_blocks()
            else:
                stored = part.weight
            first, last = (0, stored.shape[0]) if cut is None or cut.dim else (cut.start, cut.stop)
            columns = cut if cut is not None and cut.dim else None
            step = max(_BAND * stored.shape[0] // max(stored.size, 1), 1)
            for start in range(first, last, step):
                yield Rows(stored, start, min(start + step, last), partial(self._write, columns))

    def _write(self, columns: Cut | None, rows: torch.Tensor) -> None:
        assert self._file is not None
        if columns is not None:
            rows = keep(rows, columns)
        data = rows.contiguous().view(torch.uint8).numpy().reshape(-1).data
        self.digest.update(data)
        self._file.write(data)
