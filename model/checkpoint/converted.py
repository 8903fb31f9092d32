"""Converted checkpoints: one safetensors file per rank, with that rank's parameters as they lie in memory.

    manifest.json               the format, the number of ranks, each file's size and the hashes of its tensors: see manifest.py
    model<rank>-mp<ranks>.safetensors
    config.json, tokenizer.json, …  copied

Tensors have our names and this rank's shapes, with the experts of a layer stacked. Each keeps its stored dtype, and an e4m3 tensor
comes with its scales. The MTP layer is included if the source has one, without the tables that it shares with the main model.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CheckpointError, short_repr
from ..mtp import MTPTables
from ..parallel.plan import Plan, Shard
from ..weight_map import scale_parameter
from .manifest import CONVERTED, TensorHashes, read_converted_manifest
from .safetensors import StoredTensor, read_header

STATE = "conversion.json"  # names the source of an unfinished conversion

Found = tuple[Shard, StoredTensor, StoredTensor | None]  # shard, weight, scales of an e4m3 weight


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
        """Yield each shard with its place inside `tensor`, which holds the whole parameter (or its scales)."""
        offset, item = tensor.offset, tensor.size // math.prod(tensor.shape)
        for shard in self.shards:
            shape = shard.spec.scale_shape if scales else shard.spec.shape
            size = math.prod(shape) * item
            yield Shard(shard.spec), StoredTensor(tensor.file, tensor.name, tensor.dtype, shape, offset, size)
            offset += size


def fused_parameters(plan: Plan) -> list[FusedParameter]:
    """List a rank's parameters in the order of its file. A tied output head is the embedding and is not written again."""
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
    """Return whether a finished conversion wrote this directory: the manifest is written last."""
    return (directory / CONVERTED).exists()


def converted_tables(directory: Path) -> MTPTables | None:
    """Find the MTP layer's own tables in a converted checkpoint; None if there is no such layer."""
    manifest = read_converted_manifest(directory)
    tensors = dict(read_header(directory / file_name(0, manifest.values["ranks"])))
    if "mtp.eh_proj.weight" not in tensors:
        return None
    return MTPTables(embedding="mtp.embed_tokens.weight" in tensors, head="mtp.lm_head.weight" in tensors)


def find_converted(plan: Plan, directory: Path, verify_hashes: bool) -> tuple[list[Found], TensorHashes | None]:
    """Locate everything that a rank holds, and the hashes to verify.

    Raises CheckpointError for another number of ranks, another model, or files that changed after convert wrote them.
    """
    manifest = read_converted_manifest(directory)
    if (ranks := manifest.values["ranks"]) != plan.size:
        raise CheckpointError(
            directory,
            f"number of ranks is {plan.size}; expected {ranks}, for which this checkpoint was converted: "
            f"--tensor-parallel-size {ranks}, or convert with --model-parallel {plan.size}",
        )
    path = directory / file_name(plan.rank, plan.size)
    tensors = dict(read_header(path))
    pieces, hashes = manifest.check_tensors(path, tensors), None
    if verify_hashes:
        manifest.check_others()
        hashes = TensorHashes(manifest.path)
        hashes.add(tensors, pieces)
    found: list[Found] = []
    known = set()
    for fused in fused_parameters(replace(plan, mtp=converted_tables(directory))):
        weight = _expect(path, tensors, fused.name, fused.shape(), ("F8_E4M3", "BF16", "F32"))
        known.add(fused.name)
        parts: list[Found] = [(shard, part, None) for shard, part in fused.parts(weight)]
        if weight.dtype == "F8_E4M3":
            name = scale_parameter(fused.name)
            scales = fused.parts(_expect(path, tensors, name, fused.shape(True), ("F32",)), True)
            known.add(name)
            parts = [(shard, part, scale) for (shard, part, _), (_, scale) in zip(parts, scales, strict=True)]
        if plan.mtp is not None or not fused.shards[0].spec.mtp:
            found += parts
    for name in tensors.keys() - known:
        raise CheckpointError(path, f"tensor {short_repr(name)} is surplus; expected no such tensor in this model")
    return found, hashes


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
