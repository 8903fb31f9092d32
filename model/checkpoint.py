"""Hugging Face safetensors into the model's parameters, one band of rows at a time.

Everything that headers can tell is checked before any data is read, and before the model is allocated.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import torch

from ..kernels.quantize import dequantize_weight, quantize_weight
from .config import FP8_BLOCK, ModelConfig, Precision, blocks, shown
from .shards import CheckpointError, StoredTensor, read_headers
from .transformer import Transformer
from .weight_map import SCALE, Piece, pieces, scale_parameter

Progress = Callable[[int, int], None]  # (bytes read, bytes in all)

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}
_FLOATS = ("BF16", "F32")

# Elements converted at a time, 2 MiB in fp32: small beside any real tensor, large enough for sequential reads.
_BAND = 2**19


@dataclass(frozen=True)
class Placement:
    """A piece with its data's place on disk."""

    piece: Piece
    weight: StoredTensor
    scale: StoredTensor | None  # of an e4m3 weight

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.weight.size + (self.scale.size if self.scale else 0)


def load_model(
    path: str | Path,
    precision: Precision = "exact",
    backend: str = "auto",
    device: str | torch.device = "cpu",
    config_overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Transformer:
    """The model in a checkpoint directory (config.json and safetensors), with its weights, in `precision` on `device`.

    Peak memory is the parameters plus less than twice the largest tensor. `config_overrides` are fields of `ModelConfig`.
    Raises ConfigError or CheckpointError, both of one line, before allocating anything.
    """
    config = ModelConfig.from_file(path).with_overrides(**(config_overrides or {}))
    config.check_precision(precision)
    placements = match(config, read_headers(path), Path(path))
    model = Transformer(config, precision, backend, device)
    load_weights(model, placements, config, progress)
    return model


def match(config: ModelConfig, stored: Mapping[str, StoredTensor], directory: Path) -> list[Placement]:
    """Where every tensor of the table lies. Raises CheckpointError for missing, surplus, misshapen and mistyped ones."""
    placements, known = [], set()
    for piece in pieces(config):
        weight = stored.get(piece.name)
        if weight is None:
            if piece.required:
                problem = f"tensor {shown(piece.name)} is missing; wanted {_wanted(piece)} {list(piece.shape)}"
                raise CheckpointError(directory, problem)
            continue
        known.add(piece.name)
        _check(weight, piece.name, _wanted_dtypes(piece), piece.shape)
        scale = None
        if weight.dtype == "F8_E4M3":
            scale = stored.get(piece.scale_name)
            if scale is None:
                problem = f"tensor {shown(piece.scale_name)} is missing; wanted F32 {list(piece.scale_shape)}"
                raise CheckpointError(weight.file, f"{problem} beside the F8_E4M3 weight")
            known.add(piece.scale_name)
            _check(scale, piece.scale_name, ("F32",), piece.scale_shape)
        if piece.parameter is not None:
            placements.append(Placement(piece, weight, scale))
    for name, tensor in stored.items():
        if name not in known:
            weight = stored.get(name.removesuffix(SCALE))
            beside = f" beside a {weight.dtype} weight" if weight is not None and weight is not tensor else ""
            came = f"{tensor.dtype} {shown(list(tensor.shape))}"
            raise CheckpointError(
                tensor.file, f"tensor {shown(name)} is surplus: {came}; wanted no such tensor{beside}"
            )
    return placements


def _wanted_dtypes(piece: Piece) -> tuple[str, ...]:
    return (*_FLOATS, "F8_E4M3") if piece.quantised else _FLOATS


def _wanted(piece: Piece) -> str:
    return " or ".join(_wanted_dtypes(piece))


def _check(tensor: StoredTensor, name: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise CheckpointError(
            tensor.file, f"tensor {shown(name)}: shape is {shown(list(tensor.shape))}; wanted {list(shape)}"
        )
    if tensor.dtype not in dtypes:
        raise CheckpointError(
            tensor.file, f"tensor {shown(name)}: dtype is {tensor.dtype}; wanted {' or '.join(dtypes)}"
        )


@torch.no_grad()
def load_weights(
    model: torch.nn.Module, placements: list[Placement], config: ModelConfig, progress: Progress | None = None
) -> None:
    """Fill every parameter of `model`, in the dtype it has. `progress` is told after every band.

    float target: FP8 is dequantised, the rest cast. e4m3 target: FP8 is copied with its scales, the rest quantised.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    if config.tie_word_embeddings:  # a model that shares the one tensor needs it read once
        head = targets.get("lm_head.weight")
        if head is None or head.data_ptr() == targets["embed_tokens.weight"].data_ptr():
            targets.pop("lm_head.weight", None)
            placements = [placement for placement in placements if placement.piece.parameter != "lm_head.weight"]
    filled = dict.fromkeys(targets, 0)
    total = sum(placement.size for placement in placements)
    done = 0

    with ExitStack() as files:
        reader = _Reader(files)
        for placement in placements:
            piece = placement.piece
            assert piece.parameter is not None
            target = _place(targets[piece.parameter], piece, piece.row, piece.shape)
            filled[piece.parameter] += target.numel()
            scale_target = None
            if target.dtype == torch.float8_e4m3fn:
                name = scale_parameter(piece.parameter)
                scale_target = _place(targets[name], piece, piece.scale_row, piece.scale_shape)
                filled[name] += scale_target.numel()
            for size in _fill(reader, placement, target, scale_target, config.ue8m0_scales):
                done += size
                if progress is not None:
                    progress(done, total)
    for name, target in targets.items():
        assert filled[name] == target.numel(), f"{filled[name]} of {target.numel()} elements of {name} were filled"


def _place(parameter: torch.Tensor, piece: Piece, row: int, shape: tuple[int, ...]) -> torch.Tensor:
    """The part of a parameter (or of its scales) that a piece fills."""
    stacked = parameter if piece.expert is None else parameter[piece.expert]
    part = stacked[row : row + shape[0]]
    assert part.shape == shape, f"{piece.parameter} holds {list(part.shape)} for {list(shape)} of {piece.name}"
    return part


def _fill(
    reader: "_Reader", placement: Placement, target: torch.Tensor, scale_target: torch.Tensor | None, ue8m0: bool
) -> Iterator[int]:
    """Fill one target in bands of whole blocks of rows; yields the bytes read with each."""
    weight, scale = placement.weight, None
    if placement.scale is not None:
        scale = reader.read(placement.scale, 0, placement.scale.shape[0])
        if not scale.isfinite().all():
            problem = f"tensor {shown(placement.piece.scale_name)} holds non-finite scales; wanted finite ones"
            raise CheckpointError(placement.scale.file, problem)
        if scale_target is not None:
            scale_target.copy_(scale)
        scale = scale.to(target.device)
        yield placement.scale.size

    rows = max(FP8_BLOCK, _BAND // max(prod(weight.shape[1:]), 1) // FP8_BLOCK * FP8_BLOCK)
    for start in range(0, weight.shape[0], rows):
        stop = min(start + rows, weight.shape[0])
        part = target[start:stop]
        block_rows = slice(start // FP8_BLOCK, blocks(stop))
        if not reader.read_into(weight, start, part):  # another dtype or device: through a copy
            band = reader.read(weight, start, stop).to(target.device)
            if scale is not None and scale_target is None:
                band = dequantize_weight(band, scale[block_rows], part.dtype)
            elif scale is None and scale_target is not None:
                band, scale_target[block_rows] = quantize_weight(band, ue8m0)
            part.copy_(band)
        yield part.numel() * _DTYPES[weight.dtype].itemsize


class _Reader:
    """Rows of stored tensors, through plain reads: mapped pages would count as this process's memory."""

    def __init__(self, files: ExitStack) -> None:
        self._files = files
        self._path: Path | None = None
        self._file: FileIO | None = None  # one at a time: a checkpoint may have more shards than a process may open

    def read(self, tensor: StoredTensor, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop) as a new CPU tensor."""
        rows = torch.empty((stop - start, *tensor.shape[1:]), dtype=_DTYPES[tensor.dtype])
        self.read_into(tensor, start, rows)
        return rows

    def read_into(self, tensor: StoredTensor, start: int, rows: torch.Tensor) -> bool:
        """Rows from `start` on straight into `rows`; False if those have another dtype or are not plain CPU memory."""
        if rows.device.type != "cpu" or rows.dtype != _DTYPES[tensor.dtype] or not rows.is_contiguous():
            return False
        if not rows.numel():
            return True
        file = self._open(tensor.file)
        data = rows.detach().view(torch.uint8).numpy().reshape(-1).data
        file.seek(tensor.offset + start * (tensor.size // tensor.shape[0]))
        done = 0
        while done < len(data):  # one read call returns at most 2 GiB
            count = file.readinto(data[done:])
            if not count:
                raise CheckpointError(tensor.file, f"ends before byte {file.tell() + 1}; it was complete when checked")
            done += count
        return True

    def _open(self, path: Path) -> FileIO:
        if self._file is None or path != self._path:
            self._files.close()
            try:
                self._path, self._file = path, self._files.enter_context(FileIO(path))
            except OSError as error:
                raise CheckpointError(path, f"cannot be opened any more ({error.strerror})") from error
        return self._file
