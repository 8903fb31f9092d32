"""Locates on disk everything that a rank holds, by reading only headers, and checks it against the table of tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config import ModelConfig
from ..errors import CheckpointError, refuse, short_repr
from ..mtp import MTPTables
from ..parallel.plan import Plan, Shard
from ..weight_map import MTP_EMBEDDING, MTP_HEAD, SCALE, TensorSpec, tensor_specs
from .converted import STATE, converted_tables, find_converted, is_converted
from .manifest import TensorHashes, plain_hashes, read_bytes
from .safetensors import INDEX, SINGLE, StoredTensor, read_headers

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
    if not _is_plain(directory):
        if is_converted(directory):
            found, hashes = find_converted(plan, directory, verify_hashes)
            return [TensorSource(*each) for each in found], hashes
        if (directory / STATE).exists():
            problem = "is an unfinished conversion; expected a finished one: run the same convert again"
            raise CheckpointError(directory, problem)
    stored = read_headers(directory)
    sources = match(plan, stored, directory)
    return sources, plain_hashes(directory, stored) if verify_hashes else None


def match(
    plan: Plan,
    stored: Mapping[str, StoredTensor],
    directory: Path,
    refuse: Callable[[CheckpointError], None] = refuse,
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
    if _is_plain(directory):
        return f"model.layers.{config.num_hidden_layers}.{_MTP_MARK}" in read_headers(directory)
    return is_converted(directory) and converted_tables(directory) is not None


def find_mtp_tables(directory: Path, config: ModelConfig) -> MTPTables:
    """Find the tables that the MTP layer does not share with the main model. CheckpointError if there is no such layer.

    Tables of the same dtype are compared byte by byte. In the released checkpoint both are copies, so this reads the embedding and
    the head.
    """
    tables: MTPTables | None = None
    if _is_plain(directory):
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


def _is_plain(directory: Path) -> bool:
    """Return whether the directory has the Hugging Face layout."""
    return (directory / INDEX).exists() or (directory / SINGLE).exists()


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
