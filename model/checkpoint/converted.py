"""Converted checkpoints: one safetensors file a rank, which holds that rank's parameters as they lie in memory.

    manifest.json               format, number of ranks, and of every file its size and the SHA-256 of every tensor
    model<rank>-mp<ranks>.safetensors
    config.json, tokenizer.json, …  as they came

Tensors have our names and this rank's shapes, the experts of a layer stacked, and keep the dtype that they were stored in; an
e4m3 one has its scales beside it. Layers for multi-token prediction are left out, as they are in loading.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, short_repr
from ..parallel.plan import Plan, Share
from ..weight_map import scale_parameter
from .safetensors import INDEX, SINGLE, StoredTensor, parse_file, read_header

MANIFEST = "manifest.json"
STATE = "conversion.json"  # of which checkpoint the files here are, until all are there
FORMAT = "deepseek-v32 converted checkpoint, version 2"  # 1 dealt experts out in blocks


@dataclass(frozen=True)
class Stack:
    """One parameter of a rank, made of one piece or of several: gate above up, one expert behind the other."""

    name: str
    shares: tuple[Share, ...]  # in the order of memory

    def shape(self, scales: bool = False) -> tuple[int, ...]:
        """Of the parameter, or of its scales."""
        shapes = [share.piece.scale_shape if scales else share.piece.shape for share in self.shares]
        experts = len({share.piece.expert for share in self.shares})
        rows = sum(shape[0] for shape in shapes) // experts
        stacked = () if self.shares[0].piece.expert is None else (experts,)
        return (*stacked, rows, *shapes[0][1:])

    def parts(self, tensor: StoredTensor, scales: bool = False) -> Iterator[tuple[Share, StoredTensor]]:
        """Where in this parameter's (or its scales') one tensor each piece lies, cut already."""
        offset, item = tensor.offset, tensor.size // math.prod(tensor.shape)
        for share in self.shares:
            shape = share.piece.scale_shape if scales else share.piece.shape
            size = math.prod(shape) * item
            yield Share(share.piece), StoredTensor(tensor.file, tensor.dtype, shape, offset, size)
            offset += size


def stacks(plan: Plan) -> list[Stack]:
    """A rank's parameters, in the order of its file. A tied output table is the embedding's, and is not written again."""
    found: dict[str, list[Share]] = {}
    for share in plan.shares():
        assert share.piece.parameter is not None
        if not (plan.config.tie_word_embeddings and share.piece.parameter == "lm_head.weight"):
            found.setdefault(share.piece.parameter, []).append(share)
    for shares in found.values():
        shares.sort(key=lambda share: (share.piece.expert or 0, share.piece.row))
    return [Stack(name, tuple(shares)) for name, shares in found.items()]


def file_name(rank: int, size: int) -> str:
    return f"model{rank}-mp{size}.safetensors"


def is_converted(directory: Path) -> bool:
    """Whether this is a converted checkpoint. CheckpointError for one whose conversion has not come to its end."""
    if (directory / INDEX).exists() or (directory / SINGLE).exists():
        return False
    if (directory / MANIFEST).exists():
        return True
    if (directory / STATE).exists():
        raise CheckpointError(directory, "is half a conversion; wanted a finished one: run the same convert again")
    return False


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest, checked for its form."""
    path = directory / MANIFEST
    manifest = parse_file(path, "the manifest")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(path, f"format is {short_repr(manifest.get('format'))}; wanted {FORMAT!r}: convert again")
    ranks, files = manifest.get("ranks"), manifest.get("files")
    if type(ranks) is not int or not isinstance(files, dict):
        raise CheckpointError(path, "lacks ranks and files; wanted a manifest that convert wrote")
    for name, entry in files.items():
        whole = isinstance(entry, dict) and isinstance(entry.get("tensors"), dict) and type(entry.get("size")) is int
        if not whole or name != Path(name).name:
            raise CheckpointError(path, f"file {short_repr(name)} has no size and tensors; wanted what convert wrote")
    return manifest


def check_file(directory: Path, name: str, manifest: Mapping[str, Any]) -> dict[str, StoredTensor]:
    """The tensors of one rank's file, which must be as long as the manifest says and hold what it names."""
    path = directory / name
    entry = manifest["files"].get(name)
    if entry is None:
        raise CheckpointError(path, f"is not in {MANIFEST}; wanted {', '.join(manifest['files'])}")
    tensors = dict(read_header(path))
    if path.stat().st_size != entry["size"]:
        raise CheckpointError(path, f"{path.stat().st_size} bytes; wanted the {entry['size']} that {MANIFEST} names")
    for tensor in sorted(tensors.keys() ^ entry["tensors"].keys()):
        where = "is here, but not" if tensor in tensors else "is not here, but"
        raise CheckpointError(
            path, f"tensor {short_repr(tensor)} {where} in {MANIFEST}; wanted the file as it was written"
        )
    return tensors


def find_converted(plan: Plan, directory: Path) -> list[tuple[Share, StoredTensor, StoredTensor | None]]:
    """Where everything that a rank keeps lies: (what, weight, scales of an e4m3 weight).

    CheckpointError, one line, for another number of ranks, for another model, and for files that are not as they were written.
    """
    manifest = read_manifest(directory)
    if manifest["ranks"] != plan.size:
        raise CheckpointError(
            directory,
            f"converted for {manifest['ranks']} ranks; this job has {plan.size}: "
            f"torchrun --nproc-per-node {manifest['ranks']}, or convert with --model-parallel {plan.size}",
        )
    path = directory / file_name(plan.rank, plan.size)
    tensors = check_file(directory, path.name, manifest)
    found: list[tuple[Share, StoredTensor, StoredTensor | None]] = []
    known = set()
    for stack in stacks(plan):
        weight = _expect(path, tensors, stack.name, stack.shape(), ("F8_E4M3", "BF16", "F32"))
        known.add(stack.name)
        parts = list(stack.parts(weight))
        if weight.dtype != "F8_E4M3":
            found += [(share, part, None) for share, part in parts]
            continue
        name = scale_parameter(stack.name)
        scales = stack.parts(_expect(path, tensors, name, stack.shape(True), ("F32",)), True)
        known.add(name)
        found += [(share, part, scale) for (share, part), (_, scale) in zip(parts, scales, strict=True)]
    for name in tensors.keys() - known:
        raise CheckpointError(path, f"tensor {short_repr(name)} is surplus; wanted no such tensor in this model")
    return found


def _expect(
    path: Path, tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]
) -> StoredTensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(path, f"tensor {short_repr(name)} is missing; wanted {list(shape)}")
    if tensor.shape != shape or tensor.dtype not in dtypes:
        came, wanted = f"{tensor.dtype} {list(tensor.shape)}", f"{' or '.join(dtypes)} {list(shape)}"
        raise CheckpointError(path, f"tensor {short_repr(name)}: {came}; wanted {wanted}")
    return tensor
