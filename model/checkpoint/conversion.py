"""Converts a Hugging Face checkpoint into one file per rank. It streams: memory holds only a few row chunks.

A rank's file is written as *.partial and renamed when it is complete, so an interrupted conversion resumes with the first missing
file. The bytes written depend only on the checkpoint.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash

from ..errors import CheckpointError
from ..parallel.plan import Plan, ShardSlice
from ..weight_map import scale_parameter
from .config_json import read_config
from .files import sync, write_json, writing
from .load import read_ahead
from .locate import (
    STATE,
    FusedParameter,
    TensorSource,
    file_name,
    find_mtp_tables,
    fused_parameters,
    has_mtp_layer,
    is_converted,
    match,
)
from .manifest import (
    CONVERTED,
    CONVERTED_FORMAT,
    HASH,
    PLAIN,
    Progress,
    TensorHashes,
    digest,
    hash_file,
    piece_rows,
    plain_hashes,
    read_converted_manifest,
    row_chunks,
)
from .rows import DTYPES, RowChunk, narrow
from .safetensors import INDEX, StoredTensor, parse_file, read_headers

_COPIED = ("*.json", "*.jinja", "*.model", "*.txt")  # configuration, tokenizer, chat template


def convert(
    source: Path, target: Path, ranks: int, progress: Progress | None = None, verify_hashes: bool = True
) -> list[Path]:
    """Write the checkpoint in `source` for `ranks` ranks into `target`. Returns the files of weights.

    verify_hashes: compare the bytes read with the manifest of the source, if it has one. A finished conversion is not repeated; an
    interrupted one resumes. Takes a few hundred MB of memory. Raises CheckpointError or ConfigError, each of one line, if the
    checkpoint is incomplete or has changed since the conversion began, or if the target holds something else.
    """
    config = read_config(source)
    if is_converted(source):
        raise CheckpointError(
            source, f"is a converted checkpoint; expected one in the Hugging Face layout, with {INDEX}"
        )
    stored = read_headers(source)
    mtp = find_mtp_tables(source, config) if has_mtp_layer(source, config) else None
    plans = [Plan(config, rank, ranks, mtp) for rank in range(ranks)]
    sources = [match(plan, stored, source) for plan in plans]
    identity = {"format": CONVERTED_FORMAT, "ranks": ranks, "source": _identity(source, stored)}
    if _is_done(source, target, identity):
        return [target / file_name(rank, ranks) for rank in range(ranks)]

    hashes = plain_hashes(source, stored) if verify_hashes else None
    others = _copy_others(source, target)
    writers = [_rank_writers(plan, of_rank) for plan, of_rank in zip(plans, sources, strict=True)]
    paths = [target / file_name(plan.rank, ranks) for plan in plans]
    sizes = [len(_header(each)) + sum(writer.size for writer in each) for each in writers]
    missing = [path for path, size in zip(paths, sizes, strict=True) if not _is_complete(path, size)]
    _check_space(target, sum(size for path, size in zip(paths, sizes, strict=True) if path in missing), missing)
    total, done = sum(sizes), 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    for path, of_rank, size in zip(paths, writers, sizes, strict=True):
        if path not in missing:
            advance(size)
        else:
            partial = _partial(path)
            entry = _write_rank_file(partial, of_rank, advance, hashes)
            write_json(_hashes(path), entry)  # before renaming, so that a complete file always has its hashes
            os.replace(partial, path)
            sync(target)
    if _identity(source, read_headers(source)) != identity["source"]:
        raise CheckpointError(
            source, f"changed during the conversion; expected it unchanged: delete {str(target)!r} and start again"
        )
    _finish(target, ranks, others)
    return paths


def _is_complete(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size == parse_file(_hashes(path), "the hashes").get("size")


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _check_space(target: Path, needed: int, missing: list[Path]) -> None:
    """Raise CheckpointError if the disk cannot hold the remaining files. An interrupted run's incomplete files are written anew."""
    held = sum(part.stat().st_size for part in map(_partial, missing) if part.exists())
    free = shutil.disk_usage(target).free + held
    if needed > free:
        problem = f"has {free / 1e9:,.1f} GB of free space; expected {needed / 1e9:,.1f} GB for the files of weights"
        raise CheckpointError(target, problem)


def _is_done(source: Path, target: Path, identity: dict[str, Any]) -> bool:
    """Return whether the target is finished; if not, prepare it. CheckpointError if it holds another conversion or checkpoint."""
    if target.resolve() == source.resolve():
        raise CheckpointError(target, "is the checkpoint itself; expected another directory to write to")
    state = target / STATE
    if is_converted(target):
        manifest = read_converted_manifest(target).values
        found = {key: manifest.get(key) for key in identity}
        if found == identity:
            _tidy(target, ranks=identity["ranks"])
            return True
    elif state.exists():
        found = parse_file(state, "the state of the conversion")
    elif target.exists() and (leftovers := sorted(target.glob("*.safetensors"))):
        raise CheckpointError(leftovers[0], "is in the way; expected a directory without weights to write to")
    else:
        target.mkdir(parents=True, exist_ok=True)
        write_json(state, identity)
        return False
    if found != identity:
        problem = (
            "holds a conversion of another checkpoint or for another number of ranks, or the checkpoint has changed"
        )
        raise CheckpointError(target, f"{problem}; expected an empty directory: delete this one to start again")
    return False


def _identity(source: Path, stored: dict[str, StoredTensor]) -> dict[str, Any]:
    """Identify a checkpoint and its state by sizes, times and headers, without reading 689 GB of data."""
    paths = sorted({tensor.file for tensor in stored.values()})
    files = {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
    layout = [(name, each.file.name, each.dtype, each.shape, each.offset) for name, each in sorted(stored.items())]
    return {"config": hash_file(source / "config.json"), "tensors": digest(json.dumps(layout).encode()), "files": files}


def _copy_others(source: Path, target: Path) -> dict[str, str]:
    """Copy the files other than the weights. Returns their hashes."""
    others = {}
    for path in sorted({path for pattern in _COPIED for path in source.glob(pattern)}):
        if path.name not in (INDEX, PLAIN, CONVERTED, STATE):
            with writing(target / path.name):
                shutil.copyfile(path, target / path.name)
            others[path.name] = hash_file(target / path.name)
    return others


def _finish(target: Path, ranks: int, others: dict[str, str]) -> None:
    """Write the manifest, which says that the conversion is complete."""
    paths = [target / file_name(rank, ranks) for rank in range(ranks)]
    state = parse_file(target / STATE, "the state of the conversion")
    files = {path.name: parse_file(_hashes(path), "the hashes") for path in paths}
    write_json(target / CONVERTED, {**state, "hash": HASH, "files": files, "others": others})
    _tidy(target, ranks)


def _tidy(target: Path, ranks: int) -> None:
    """Remove the files that only an unfinished conversion needs."""
    for path in (*(_hashes(target / file_name(rank, ranks)) for rank in range(ranks)), target / STATE):
        path.unlink(missing_ok=True)


def _hashes(path: Path) -> Path:
    return path.with_name(path.name + ".hashes.json")


def _rank_writers(plan: Plan, sources: list[TensorSource]) -> list["_TensorWriter"]:
    """The writers of a rank's tensors, in the order of its file."""
    by_shard = {source.shard: source for source in sources}
    fused = fused_parameters(plan)
    return [writer for each in fused for writer in _writers(each, [by_shard[shard] for shard in each.shards])]


def _header(writers: list["_TensorWriter"]) -> bytes:
    """The beginning of a rank's file, up to the first tensor."""
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
    return len(encoded).to_bytes(8, "little") + encoded


def _write_rank_file(
    path: Path, writers: list["_TensorWriter"], advance: Callable[[int], None], hashes: TensorHashes | None
) -> dict[str, Any]:
    """Write a rank's parameters to `path` in their stored dtypes. Returns the file's size and its tensors' hashes.

    hashes: the source's hashes to verify. advance: called with the bytes that have been written.
    """
    with writing(path), path.open("wb") as file:
        written = file.write(_header(writers))
        advance(written)
        for _ in read_ahead((chunk for writer in writers for chunk in writer.work(file)), hashes):
            advance(file.tell() - written)
            written = file.tell()
        file.flush()
        os.fsync(file.fileno())
        return {"size": file.tell(), "tensors": {writer.name: " ".join(writer.pieces) for writer in writers}}


def _writers(fused: FusedParameter, parts: list[TensorSource]) -> Iterator["_TensorWriter"]:
    """Yield the writer of a parameter and, if it has scales, the writer of its scales."""
    dtype = parts[0].weight.dtype
    for part in parts:
        if part.weight.dtype != dtype:
            problem = f"dtype is {part.weight.dtype}; expected {dtype}, as in the other tensors of {fused.name}"
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
        """Append rows of a part. `rows_left` counts its unwritten rows, including these."""
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
