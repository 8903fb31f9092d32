"""Locates on disk everything that a rank holds, by reading only headers, and checks it against the table of tensors.

A checkpoint has the Hugging Face layout, or it was converted to one file per rank, with that rank's parameters as they lie in
memory:

    manifest.json               the format, the number of ranks, each file's size and the hashes of its tensors: see manifest.py
    model<rank>-mp<ranks>.safetensors
    config.json, tokenizer.json, …  copied

Tensors have our names and this rank's shapes, with the experts of a layer stacked. Each keeps its stored dtype, and an e4m3 tensor
comes with its scales. The MTP layer is included if the source has one, without the tables that it shares with the main model.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import ModelConfig
from ..errors import CheckpointError, refuse, short_repr
from ..mtp import MTPTables
from ..parallel.plan import Plan, Shard
from ..weight_map import MTP_EMBEDDING, MTP_HEAD, SCALE, TensorSpec, scale_parameter, tensor_specs
from .manifest import CONVERTED, TensorHashes, plain_hashes, read_bytes, read_converted_manifest
from .safetensors import StoredTensor, is_plain, read_header, read_headers

_FLOATS = ("BF16", "F32")
_MTP_MARK = "eh_proj.weight"  # only an MTP layer has it
_COMPARED = 1 << 24  # bytes that are compared at a time


@dataclass(frozen=True)
class TensorSource:
    """A rank's part of a tensor, and where the tensor lies on disk."""

    shard: Shard
    weight: StoredTensor
    scale: StoredTensor | None  # of an e4m3 weight

    @property
    def rows(self) -> tuple[int, int]:
        """First and last row (exclusive) of the stored tensor to read."""
        kept = self.shard.kept
        return (0, self.weight.shape[0]) if kept is None or kept.dim else (kept.start, kept.stop)

    @property
    def size(self) -> int:
        """Bytes to read."""
        first, last = self.rows
        return self.weight.row_bytes * (last - first) + (self.scale.size if self.scale else 0)


def locate(plan: Plan, directory: Path, verify_hashes: bool = True) -> tuple[list[TensorSource], TensorHashes | None]:
    """Locate everything that a rank holds, in a checkpoint of either layout, and the hashes to verify, if there are any.

    A directory that holds both layouts is read in the Hugging Face layout. Raises CheckpointError; with `verify_hashes` also for
    other files that differ from the manifest.
    """
    if not is_plain(directory):
        if is_converted(directory):
            return find_converted(plan, directory, verify_hashes)
        if (directory / STATE).exists():
            problem = "is an unfinished conversion; expected a finished one: run the same convert again"
            raise CheckpointError(directory, problem)
    stored = read_headers(directory)
    sources = match(plan, stored, directory)
    return sources, plain_hashes(directory, stored) if verify_hashes else None


def match(
    plan: Plan, stored: Mapping[str, StoredTensor], directory: Path, refuse: Callable[[CheckpointError], None] = refuse
) -> list[TensorSource]:
    """Locate every tensor of which the plan's rank holds a part.

    Calls `refuse`, which raises by default, with a CheckpointError for each tensor that is missing or surplus, or has another shape
    or dtype.
    """
    found: dict[TensorSpec, tuple[StoredTensor, StoredTensor | None]] = {}
    known = set()
    for spec in tensor_specs(plan.config):
        weight = stored.get(spec.name)
        if weight is None:
            if spec.required and (not spec.mtp or plan.mtp is not None):
                expected = f"{' or '.join(_dtypes(spec))} {list(spec.shape)}"
                problem = f"tensor {short_repr(spec.name)} is missing; expected {expected}"
                refuse(CheckpointError(directory, problem))
            continue
        known.add(spec.name)
        _check(weight, spec.name, _dtypes(spec), spec.shape, refuse)
        scale = None
        if weight.dtype == "F8_E4M3":
            scale = stored.get(spec.scale_name)
            if scale is None:
                problem = f"tensor {short_repr(spec.scale_name)} is missing; expected F32 {list(spec.scale_shape)}"
                refuse(CheckpointError(weight.file, f"{problem} next to the F8_E4M3 weight"))
                continue
            known.add(spec.scale_name)
            _check(scale, spec.scale_name, ("F32",), spec.scale_shape, refuse)
        found[spec] = weight, scale
    _check_layers(plan.config, stored)
    for name, tensor in stored.items():
        if name not in known:
            weight = stored.get(name.removesuffix(SCALE))
            beside = f" next to a {weight.dtype} weight" if weight is not None and weight is not tensor else ""
            came = f"{tensor.dtype} {short_repr(list(tensor.shape))}"
            problem = f"tensor {short_repr(name)} is surplus: {came}; expected no such tensor{beside}"
            refuse(CheckpointError(tensor.file, problem))
    shards = ((spec, plan.shard(spec)) for spec in found)
    return [TensorSource(shard, *found[spec]) for spec, shard in shards if shard is not None]


def has_mtp_layer(directory: Path, config: ModelConfig) -> bool:
    """Return whether a checkpoint of either layout holds an MTP layer. Raises CheckpointError if headers cannot be read."""
    if is_plain(directory):
        return f"model.layers.{config.num_hidden_layers}.{_MTP_MARK}" in read_headers(directory)
    return is_converted(directory) and converted_tables(directory) is not None


def find_mtp_tables(directory: Path, config: ModelConfig) -> MTPTables:
    """Find the tables that the MTP layer does not share with the main model. CheckpointError if there is no such layer.

    Tables of the same dtype are compared byte by byte. In the released checkpoint both are copies, so this reads the embedding and
    the head.
    """
    tables: MTPTables | None = None
    if is_plain(directory):
        stored = read_headers(directory)
        prefix = f"model.layers.{config.num_hidden_layers}."
        if prefix + _MTP_MARK in stored:
            head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
            tables = MTPTables(
                embedding=_differs(stored, prefix + MTP_EMBEDDING, "model.embed_tokens.weight"),
                head=_differs(stored, prefix + MTP_HEAD, head),
            )
    elif is_converted(directory):
        tables = converted_tables(directory)
    if tables is None:
        problem = f"has no next-token layer (model.layers.{config.num_hidden_layers}.{_MTP_MARK})"
        raise CheckpointError(directory, f"{problem}; expected one for speculative decoding: use 0 speculative tokens")
    return tables


def _differs(stored: Mapping[str, StoredTensor], name: str, main: str) -> bool:
    """Return whether the MTP layer has this table and its bytes differ from the main model's."""
    own, other = stored.get(name), stored.get(main)
    if own is None or other is None:
        return own is not None
    if (own.dtype, own.shape) != (other.dtype, other.shape):
        return True
    return any(
        read_bytes(own.file, own.offset + first, own.offset + min(first + _COMPARED, own.size))
        != read_bytes(other.file, other.offset + first, other.offset + min(first + _COMPARED, own.size))
        for first in range(0, own.size, _COMPARED)
    )


def _check_layers(config: ModelConfig, stored: Mapping[str, StoredTensor]) -> None:
    """Raise CheckpointError if the first MTP layer is one of the model's own: num_hidden_layers is too low."""
    prefix = f"model.layers.{config.num_hidden_layers}."
    first = next((tensor for name, tensor in stored.items() if name.startswith(prefix)), None)
    if first is not None and prefix + _MTP_MARK not in stored:
        problem = f"num_hidden_layers is {config.num_hidden_layers}; expected more, because {first.name!r} is stored"
        raise CheckpointError(first.file, f"{problem} and its layer has no eh_proj, so it is no next-token layer")


def _dtypes(spec: TensorSpec) -> tuple[str, ...]:
    """The dtypes in which a tensor may be stored."""
    return (*_FLOATS, "F8_E4M3") if spec.quantised else _FLOATS


def _check(
    tensor: StoredTensor,
    name: str,
    dtypes: tuple[str, ...],
    shape: tuple[int, ...],
    refuse: Callable[[CheckpointError], None],
) -> None:
    where = f"tensor {short_repr(name)}"
    if tensor.shape != shape:
        came = short_repr(list(tensor.shape))
        refuse(CheckpointError(tensor.file, f"{where}: shape is {came}; expected {list(shape)}"))
    if tensor.dtype not in dtypes:
        refuse(CheckpointError(tensor.file, f"{where}: dtype is {tensor.dtype}; expected {' or '.join(dtypes)}"))


STATE = "conversion.json"  # names the source of an unfinished conversion


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


def find_converted(plan: Plan, directory: Path, verify_hashes: bool) -> tuple[list[TensorSource], TensorHashes | None]:
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
    found: list[TensorSource] = []
    known = set()
    for fused in fused_parameters(replace(plan, mtp=converted_tables(directory))):
        weight = _expect(path, tensors, fused.name, fused.shape(), ("F8_E4M3", "BF16", "F32"))
        known.add(fused.name)
        parts = [TensorSource(shard, part, None) for shard, part in fused.parts(weight)]
        if weight.dtype == "F8_E4M3":
            name = scale_parameter(fused.name)
            scales = fused.parts(_expect(path, tensors, name, fused.shape(True), ("F32",)), True)
            known.add(name)
            parts = [replace(part, scale=scale) for part, (_, scale) in zip(parts, scales, strict=True)]
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
