"""Converted checkpoints: one safetensors file per rank, which holds that rank's parameters as they lie in memory.

    manifest.json               the format, the number of ranks, each file's size and the SHA-256 of each of its tensors
    model<rank>-mp<ranks>.safetensors
    config.json, tokenizer.json, …  copied

Tensors have our names and this rank's shapes, with the experts of a layer stacked. Each keeps the dtype in which it was
stored; an e4m3 tensor has its scales beside it. MTP layers are left out, because they are not loaded either.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, short_repr
from ..parallel.plan import Plan, Shard
from ..weight_map import scale_parameter
from .safetensors import StoredTensor, parse_file, read_header

MANIFEST = "manifest.json"
STATE = "conversion.json"  # names the source of an unfinished conversion
FORMAT = "deepseek-v32 converted checkpoint, version 2"  # version 1 gave each rank a block of neighbouring experts


@dataclass(frozen=True)
class FusedParameter:
    """One parameter of a rank, made of one or several tensors of the checkpoint: gate above up, one expert after the other."""

    name: str
    shards: tuple[Shard, ...]  # in the order of memory

    def shape(self, scales: bool = False) -> tuple[int, ...]:
        """Shape of the parameter, or of its scales."""
        shapes = [shard.spec.scale_shape if scales else shard.spec.shape for shard in self.shards]
        experts = len({shard.spec.expert for shard in self.shards})
        rows = sum(shape[0] for shape in shapes) // experts
        stacked = () if self.shards[0].spec.expert is None else (experts,)
        return (*stacked, rows, *shapes[0][1:])

    def parts(self, tensor: StoredTensor, scales: bool = False) -> Iterator[tuple[Shard, StoredTensor]]:
        """Each shard with its place inside `tensor`, which holds this parameter (or its scales) as one."""
        offset, item = tensor.offset, tensor.size // math.prod(tensor.shape)
        for shard in self.shards:
            shape = shard.spec.scale_shape if scales else shard.spec.shape
            size = math.prod(shape) * item
            yield Shard(shard.spec), StoredTensor(tensor.file, tensor.dtype, shape, offset, size)
            offset += size


def fused_parameters(plan: Plan) -> list[FusedParameter]:
    """A rank's parameters, in the order of its file. A tied output head is the embedding and is not written again."""
    found: dict[str, list[Shard]] = {}
    for shard in plan.shards():
        assert shard.spec.parameter is not None
        if not (plan.config.tie_word_embeddings and shard.spec.parameter == "lm_head.weight"):
            found.setdefault(shard.spec.parameter, []).append(shard)
    for shards in found.values():
        shards.sort(key=lambda shard: (shard.spec.expert or 0, shard.spec.row))
    return [FusedParameter(name, tuple(shards)) for name, shards in found.items()]


def file_name(rank: int, size: int) -> str:
    return f"model{rank}-mp{size}.safetensors"


def is_converted(directory: Path) -> bool:
    """Whether a finished conversion wrote this directory: the manifest is written last."""
    return (directory / MANIFEST).exists()


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest. Raises CheckpointError unless it has the form that convert writes."""
    path = directory / MANIFEST
    manifest = parse_file(path, "the manifest")
    if manifest.get("format") != FORMAT:
        came = short_repr(manifest.get("format"))
        raise CheckpointError(path, f"format is {came}; expected {FORMAT!r}: convert again")
    ranks, files = manifest.get("ranks"), manifest.get("files")
    if type(ranks) is not int or not isinstance(files, dict):
        raise CheckpointError(path, "ranks or files is missing; expected a manifest that convert wrote")
    for name, entry in files.items():
        complete = isinstance(entry, dict) and isinstance(entry.get("tensors"), dict) and type(entry.get("size")) is int
        if not complete or name != Path(name).name:
            problem = f"entry of file {short_repr(name)} is {short_repr(entry)}; expected the size and tensors that convert wrote"
            raise CheckpointError(path, problem)
    return manifest


def check_file(directory: Path, name: str, manifest: Mapping[str, Any]) -> dict[str, StoredTensor]:
    """The tensors of one rank's file. Raises CheckpointError unless its size and tensors are those in the manifest."""
    path = directory / name
    entry = manifest["files"].get(name)
    if entry is None:
        raise CheckpointError(path, f"is not in {MANIFEST}; expected one of {', '.join(manifest['files'])}")
    tensors = dict(read_header(path))
    size = path.stat().st_size
    if size != entry["size"]:
        raise CheckpointError(path, f"size is {size} bytes; expected the {entry['size']} in {MANIFEST}")
    for tensor in sorted(tensors.keys() ^ entry["tensors"].keys()):
        where = "is here, but not" if tensor in tensors else "is not here, but"
        problem = f"tensor {short_repr(tensor)} {where} in {MANIFEST}; expected the file as convert wrote it"
        raise CheckpointError(path, problem)
    return tensors


def find_converted(plan: Plan, directory: Path) -> list[tuple[Shard, StoredTensor, StoredTensor | None]]:
    """Where everything that a rank holds lies: (shard, weight, scales of an e4m3 weight).

    Raises CheckpointError for another number of ranks, another model, and files that are not as convert wrote them.
    """
    manifest = read_manifest(directory)
    if manifest["ranks"] != plan.size:
        raise CheckpointError(
            directory,
            f"number of ranks is {plan.size}; expected {manifest['ranks']}, for which this checkpoint was converted: "
            f"torchrun --nproc-per-node {manifest['ranks']}, or convert with --model-parallel {plan.size}",
        )
    path = directory / file_name(plan.rank, plan.size)
    tensors = check_file(directory, path.name, manifest)
    found: list[tuple[Shard, StoredTensor, StoredTensor | None]] = []
    known = set()
    for fused in fused_parameters(plan):
        weight = _expect(path, tensors, fused.name, fused.shape(), ("F8_E4M3", "BF16", "F32"))
        known.add(fused.name)
        parts = list(fused.parts(weight))
        if weight.dtype != "F8_E4M3":
            found += [(shard, part, None) for shard, part in parts]
            continue
        name = scale_parameter(fused.name)
        scales = fused.parts(_expect(path, tensors, name, fused.shape(True), ("F32",)), True)
        known.add(name)
        found += [(shard, part, scale) for (shard, part), (_, scale) in zip(parts, scales, strict=True)]
    for name in tensors.keys() - known:
        raise CheckpointError(path, f"tensor {short_repr(name)} is surplus; expected no such tensor in this model")
    return found


def _expect(
    path: Path, tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]
) -> StoredTensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(path, f"tensor {short_repr(name)} is missing; expected {list(shape)}")
    if tensor.shape != shape or tensor.dtype not in dtypes:
        came, expected = f"{tensor.dtype} {list(tensor.shape)}", f"{' or '.join(dtypes)} {list(shape)}"
        raise CheckpointError(path, f"tensor {short_repr(name)} is {came}; expected {expected}")
    return tensor
