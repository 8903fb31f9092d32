"""Rows of stored tensors: the chunks in which they are read, the check for NaN, and their conversion into parameters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch

from ...kernels.quantize_weight import dequantize_weight, quantize_weight
from ..config import FP8_BLOCK, blocks
from ..errors import CheckpointError, short_repr
from ..parallel.plan import ShardSlice
from .locate import TensorSource
from .manifest import row_chunks
from .safetensors import StoredTensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}

# Infinity and NaN are the largest bit patterns: of positive values as signed integers, of negative ones as unsigned integers. For
# each dtype: the integers, and the least pattern of infinity or NaN as either.
_NON_FINITE: dict[str, tuple[tuple[type[np.integer[Any]], int], ...]] = {
    "F32": ((np.int32, 0x7F800000), (np.uint32, 0xFF800000)),
    "BF16": ((np.int16, 0x7F80), (np.uint16, 0xFF80)),
    "F8_E4M3": ((np.int8, 0x7F), (np.uint8, 0xFF)),
}
_CHECKED = 2**20  # bytes that are checked at a time, so that they stay in a core's cache


@dataclass(frozen=True)
class RowChunk:
    """Rows [start, stop) of a stored tensor, and the function that uses them."""

    tensor: StoredTensor
    start: int
    stop: int
    use: Callable[[torch.Tensor], None]
    # Contiguous CPU memory of the same dtype and shape to read into. None: memory is allocated.
    into: torch.Tensor | None = None

    @property
    def size(self) -> int:
        """Bytes to read."""
        return (self.stop - self.start) * self.tensor.row_bytes


def check_finite(tensor: StoredTensor, data: np.ndarray) -> None:
    """Raise CheckpointError if bytes of a tensor hold NaN or infinity.

    They may stay hidden otherwise: in an expert that is seldom chosen, or in an index key that is then never selected.
    """
    for first in range(0, len(data), _CHECKED):
        part = data[first : first + _CHECKED]
        if any(part.view(kind).max() >= least for kind, least in _NON_FINITE[tensor.dtype]):
            problem = f"tensor {short_repr(tensor.name)} holds NaN or infinity"
            raise CheckpointError(tensor.file, f"{problem}; expected finite values")


def check_scales(tensor: StoredTensor, scale: torch.Tensor, ue8m0: bool, unusual: list[str]) -> None:
    """Raise CheckpointError for scales of 0 or less. If some should be powers of two and are not, add the name to `unusual`."""
    if (scale <= 0).any():
        problem = f"tensor {short_repr(tensor.name)} holds scales of 0 or less, the least {scale.min():g}"
        raise CheckpointError(tensor.file, f"{problem}; expected positive ones")
    if ue8m0 and (scale.frexp().mantissa != 0.5).any():
        unusual.append(tensor.name)


_CONVERTED = 2**19  # elements that are converted at a time: 2 MiB in fp32


class ParameterLoader:
    """Loads one tensor into a parameter, in row chunks of whole FP8 blocks."""

    def __init__(
        self,
        source: TensorSource,
        target: torch.Tensor,
        scale_target: torch.Tensor | None,
        ue8m0: bool,
        unusual: list[str],
    ) -> None:
        self._source, self._target, self._scale_target, self._ue8m0 = source, target, scale_target, ue8m0
        self._unusual = unusual
        # This rank's part of the stored scales, to multiply by, on the target's device.
        self._scale: torch.Tensor | None = None
        width = max(prod(source.weight.shape[1:]), 1)
        self._step = max(FP8_BLOCK, _CONVERTED // width // FP8_BLOCK * FP8_BLOCK)  # rows that are converted at a time

    def work(self) -> Iterator[RowChunk]:
        """The row chunks to read, in order."""
        weight, scale, target = self._source.weight, self._source.scale, self._target
        if scale is not None:
            yield RowChunk(scale, 0, scale.shape[0], self._take_scale)
        # Data that needs no conversion and no slicing by columns is read directly into the parameter.
        plain = target.dtype == DTYPES[weight.dtype] and target.shape[1:] == weight.shape[1:]
        direct = plain and target.device.type == "cpu" and target.is_contiguous()
        first, last = self._source.rows
        for start, stop in row_chunks(weight, first, last):
            chunk = slice(start - first, stop - first)
            use = partial(self._take_chunk, chunk, stop - start if plain else self._step)
            yield RowChunk(weight, start, stop, use, target[chunk] if direct else None)

    def _take_scale(self, scale: torch.Tensor) -> None:
        source = self._source
        assert source.scale is not None
        check_scales(source.scale, scale, self._ue8m0, self._unusual)
        kept = source.shard.kept
        if kept is not None:
            scale = narrow(scale, kept.of_scales())
        if self._scale_target is None:
            self._scale = scale.to(self._target.device)
        else:
            self._scale_target.copy_(scale)

    def convert(self, rows: torch.Tensor, scale: torch.Tensor | None) -> None:
        """Fill the target from the stored tensor's rows and scales, which have been read."""
        self._scale = scale
        self._take_chunk(slice(0, len(rows)), self._step, rows)

    def _take_chunk(self, chunk: slice, step: int, rows: torch.Tensor) -> None:
        """Use a row chunk, `step` rows at a time."""
        for first in range(chunk.start, chunk.stop, step):
            part = slice(first, min(first + step, chunk.stop))
            self._take_rows(part, rows[part.start - chunk.start : part.stop - chunk.start])

    def _take_rows(self, part: slice, rows: torch.Tensor) -> None:
        target, scale_target, kept = self._target[part], self._scale_target, self._source.shard.kept
        block_rows = slice(part.start // FP8_BLOCK, blocks(part.stop))
        if kept is not None and kept.dim:
            rows = narrow(rows, kept)
        if self._scale is not None:
            dequantize_weight(rows.to(target.device), self._scale[block_rows], target.dtype, target)
            return
        if self._source.scale is None and scale_target is not None:
            rows, scale_target[block_rows] = quantize_weight(rows.to(target.device), self._ue8m0)
        if rows.data_ptr() != target.data_ptr():
            target.copy_(rows)


def narrow(tensor: torch.Tensor, kept: ShardSlice) -> torch.Tensor:
    """A slice of a tensor."""
    return tensor.narrow(kept.dim, kept.start, kept.size)
