"""A Hugging Face checkpoint into one file a rank, streamed: nothing is held but a few bands of rows.

A rank's file grows under the name *.partial and gets its own name when it is whole, so a conversion that was killed goes on with
the first file that is not there. What is written depends on the checkpoint alone: it ends in the same bytes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch

from .checkpoint import Placement, Progress, keep, match
from .config import ModelConfig, shown
from .converted import FORMAT, MANIFEST, STATE, Stack, check_file, file_name, read_manifest, stacks
from .plan import Cut, Plan
from .reading import DTYPES, Rows, read_ahead
from .shards import INDEX, CheckpointError, StoredTensor, parse_file, read_headers
from .weight_map import scale_parameter

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_BAND = 2**22  # bytes read at a time
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt")  # configuration, tokenizer, chat template


def convert(source: Path, target: Path, ranks: int, progress: Progress | None = None) -> list[Path]:
    """Write the checkpoint in `source` for `ranks` ranks into `target`; returns the files of weights.

    Done already, it does nothing; cut off, it goes on. Takes a few hundred MB of memory. CheckpointError or ConfigError, of one
    line: the checkpoint is not whole, has changed since the conversion began, or the target holds something else.
    """
    config = ModelConfig.from_file(source)
    plans = [Plan(config, rank, ranks) for rank in range(ranks)]
    if is_whole(source):
        raise CheckpointError(source, f"is a converted checkpoint; wanted one in the Hugging Face layout, with {INDEX}")
    stored = read_headers(source)
    placements = [match(plan, stored, source) for plan in plans]
    identity = {"format": FORMAT, "ranks": ranks, "source": _identity(source, stored)}
    if _is_done(source, target, identity):
        return [target / file_name(rank, ranks) for rank in range(ranks)]

    others = _copy_others(source, target)
    total, done = sum(each.size for of_rank in placements for each in of_rank), 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    for plan, of_rank in zip(plans, placements, strict=True):
        path = target / file_name(plan.rank, ranks)
        if path.exists() and path.stat().st_size == parse_file(_hashes(path), "the hashes").get("size"):
            advance(sum(each.size for each in of_rank))
        else:
            _write_file(path, plan, of_rank, advance)
    if _identity(source, read_headers(source)) != identity["source"]:
        raise CheckpointError(source, f"changed while it was converted; delete {str(target)!r} and start again")
    _finish(target, ranks, others)
    return [target / file_name(rank, ranks) for rank in range(ranks)]


def verify(directory: Path, progress: Progress | None = None) -> int:
    """Read every byte of a converted checkpoint again; returns the number of tensors. CheckpointError for the first difference."""
    manifest = read_manifest(directory)
    total, done, count = sum(entry["size"] for entry in manifest["files"].values()), 0, 0
    for name, wanted in manifest.get("others", {}).items():
        if _hash_file(directory / name) != wanted:
            raise CheckpointError(directory / name, f"is not as it was copied: its SHA-256 is not that of {MANIFEST}")
    for rank in range(manifest["ranks"]):
        name = file_name(rank, manifest["ranks"])
        tensors = check_file(directory, name, manifest)
        with (directory / name).open("rb") as file:
            for tensor in sorted(tensors, key=lambda key: tensors[key].offset):
                digest = hashlib.sha256()
                file.seek(tensors[tensor].offset)
                left = tensors[tensor].size
                while left:
                    data = file.read(min(left, _BAND))
                    if not data:
                        raise CheckpointError(directory / name, f"ends inside tensor {shown(tensor)}")
                    digest.update(data)
                    left -= len(data)
                    done += len(data)
                    if progress is not None:
                        progress(done, total)
                if digest.hexdigest() != manifest["files"][name]["tensors"][tensor]:
                    raise CheckpointError(
                        directory / name,
                        f"tensor {shown(tensor)} is not as it was written: its SHA-256 is not that of {MANIFEST}",
                    )
                count += 1
    return count


def is_whole(directory: Path) -> bool:
    """Whether this is a converted checkpoint to its end."""
    return (directory / MANIFEST).exists()


def _is_done(source: Path, target: Path, identity: dict[str, Any]) -> bool:
    """Whether the target is finished; if not, it is made ready. CheckpointError if it is for something else."""
    if target.resolve() == source.resolve():
        raise CheckpointError(target, "is the checkpoint itself; wanted another directory to write to")
    state = target / STATE
    if is_whole(target):
        manifest = read_manifest(target)
        found = {key: manifest.get(key) for key in identity}
        if found == identity:
            _tidy(target, ranks=identity["ranks"])
            return True
    elif state.exists():
        found = parse_file(state, "the state of the conversion")
    elif target.exists() and (leftovers := sorted(target.glob("*.safetensors"))):
        raise CheckpointError(leftovers[0], "is in the way; wanted a directory without weights to write to")
    else:
        target.mkdir(parents=True, exist_ok=True)
        _write_json(state, identity)
        return False
    if found != identity:
        raise CheckpointError(
            target,
            "was begun from another checkpoint, or that has changed since, or for another number of ranks; delete it",
        )
    return False


def _identity(source: Path, stored: dict[str, StoredTensor]) -> dict[str, Any]:
    """What tells a checkpoint from another, or from itself after a change, without reading 689 GB."""
    paths = sorted({tensor.file for tensor in stored.values()})
    files = {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}
    layout = [(name, each.file.name, each.dtype, each.shape, each.offset) for name, each in sorted(stored.items())]
    return {
        "config": _hash_file(source / "config.json"),
        "tensors": hashlib.sha256(json.dumps(layout).encode()).hexdigest(),
        "files": files,
    }


def _write_file(path: Path, plan: Plan, placements: list[Placement], advance: Callable[[int], None]) -> None:
    """One rank's file, and the hashes of its tensors beside it."""
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
    growing = path.with_name(path.name + ".partial")
    with growing.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for size in read_ahead(rows for writer in writers for rows in writer.work(file)):
            advance(size)
        file.flush()
        os.fsync(file.fileno())
        entry = {"size": file.tell(), "tensors": {writer.name: writer.digest.hexdigest() for writer in writers}}
    _write_json(_hashes(path), entry)  # before the file has its name: who finds that may rely on these
    os.replace(growing, path)
    _sync(path.parent)


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


def _copy_others(source: Path, target: Path) -> dict[str, str]:
    """Copy what else belongs to a checkpoint; returns the files' hashes."""
    others = {}
    for path in sorted({path for pattern in _COPIED for path in source.glob(pattern)}):
        if path.name not in (INDEX, MANIFEST, STATE):
            shutil.copyfile(path, target / path.name)
            others[path.name] = _hash_file(target / path.name)
    return others


def _finish(target: Path, ranks: int, others: dict[str, str]) -> None:
    """Let the manifest say that all is there."""
    paths = [target / file_name(rank, ranks) for rank in range(ranks)]
    state = parse_file(target / STATE, "the state of the conversion")
    files = {path.name: parse_file(_hashes(path), "the hashes") for path in paths}
    _write_json(target / MANIFEST, {**state, "files": files, "others": others})
    _tidy(target, ranks)


def _tidy(target: Path, ranks: int) -> None:
    """Remove what only an unfinished conversion needs."""
    for path in (*(_hashes(target / file_name(rank, ranks)) for rank in range(ranks)), target / STATE):
        path.unlink(missing_ok=True)


def _hashes(path: Path) -> Path:
    return path.with_name(path.name + ".hashes.json")


def _write_json(path: Path, value: Any) -> None:
    """All of it or nothing."""
    growing = path.with_name(path.name + ".partial")
    with growing.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(growing, path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Make renames last through a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error
