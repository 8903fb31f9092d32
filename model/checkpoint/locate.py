"""Where everything that a rank keeps lies on disk, checked by headers alone against the table of tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointError, short_repr
from ..parallel.plan import Plan, Share
from ..weight_map import SCALE, Piece, pieces
from .converted import find_converted, is_converted
from .safetensors import StoredTensor, read_headers

_FLOATS = ("BF16", "F32")


@dataclass(frozen=True)
class Placement:
    """What a rank keeps of a tensor, with its data's place on disk."""

    share: Share
    weight: StoredTensor
    scale: StoredTensor | None  # of an e4m3 weight

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the stored tensor that are read."""
        cut = self.share.cut
        return (0, self.weight.shape[0]) if cut is None or cut.dim else (cut.start, cut.stop)

    @property
    def size(self) -> int:
        """Bytes to read."""
        first, last = self.rows
        weight = self.weight.size // max(self.weight.shape[0], 1) * (last - first)
        return weight + (self.scale.size if self.scale else 0)


def locate(plan: Plan, directory: Path) -> list[Placement]:
    """Where everything that a rank keeps lies in a checkpoint of either kind. Raises CheckpointError."""
    if is_converted(directory):
        return [Placement(*found) for found in find_converted(plan, directory)]
    return match(plan, read_headers(directory), directory)


def match(plan: Plan, stored: Mapping[str, StoredTensor], directory: Path) -> list[Placement]:
    """Where every tensor of the table lies, of those that the plan's rank keeps something of.

    Raises CheckpointError for missing, surplus, misshapen and mistyped ones.
    """
    found: dict[Piece, tuple[StoredTensor, StoredTensor | None]] = {}
    known = set()
    for piece in pieces(plan.config):
        weight = stored.get(piece.name)
        if weight is None:
            if piece.required:
                problem = f"tensor {short_repr(piece.name)} is missing; wanted {_wanted(piece)} {list(piece.shape)}"
                raise CheckpointError(directory, problem)
            continue
        known.add(piece.name)
        _check(weight, piece.name, _wanted_dtypes(piece), piece.shape)
        scale = None
        if weight.dtype == "F8_E4M3":
            scale = stored.get(piece.scale_name)
            if scale is None:
                problem = f"tensor {short_repr(piece.scale_name)} is missing; wanted F32 {list(piece.scale_shape)}"
                raise CheckpointError(weight.file, f"{problem} beside the F8_E4M3 weight")
            known.add(piece.scale_name)
            _check(scale, piece.scale_name, ("F32",), piece.scale_shape)
        found[piece] = weight, scale
    for name, tensor in stored.items():
        if name not in known:
            weight = stored.get(name.removesuffix(SCALE))
            beside = f" beside a {weight.dtype} weight" if weight is not None and weight is not tensor else ""
            came = f"{tensor.dtype} {short_repr(list(tensor.shape))}"
            raise CheckpointError(
                tensor.file, f"tensor {short_repr(name)} is surplus: {came}; wanted no such tensor{beside}"
            )
    shares = ((piece, plan.share(piece)) for piece in found)
    return [Placement(share, *found[piece]) for piece, share in shares if share is not None]


def _wanted_dtypes(piece: Piece) -> tuple[str, ...]:
    return (*_FLOATS, "F8_E4M3") if piece.quantised else _FLOATS


def _wanted(piece: Piece) -> str:
    return " or ".join(_wanted_dtypes(piece))


def _check(tensor: StoredTensor, name: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise CheckpointError(
            tensor.file, f"tensor {short_repr(name)}: shape is {short_repr(list(tensor.shape))}; wanted {list(shape)}"
        )
    if tensor.dtype not in dtypes:
        raise CheckpointError(
            tensor.file, f"tensor {short_repr(name)}: dtype is {tensor.dtype}; wanted {' or '.join(dtypes)}"
        )
