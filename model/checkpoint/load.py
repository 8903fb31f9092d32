"""Loads stored tensors into the model's parameters, one row chunk at a time, from either checkpoint layout.

Headers are checked before any data is read and before the model is allocated. From Hugging Face safetensors, a rank reads whole
rows even of tensors that are split by columns: with the released model on eight ranks, each rank reads 87 GiB and keeps 80. A
converted file holds only its rank's part.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...kernels.quantize import dequantize_weight, quantize_weight
from ..config import FP8_BLOCK, ModelConfig, Precision, blocks
from ..errors import CheckpointError, short_repr
from ..parallel.collectives import Ranks
from ..parallel.plan import Plan, ShardSlice
from ..parallel.shard import build_model
from ..transformer import Transformer
from ..weight_map import TensorSpec, scale_parameter
from .config_json import read_config
from .locate import TensorSource, find_mtp_tables, locate
from .manifest import Progress, TensorHashes, read_into, row_chunks
from .safetensors import StoredTensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}

_THREADS = 4  # a single thread would leave the disk or the network idle between its reads
_AHEAD = 2**24  # bytes that may be read but not yet used: little compared with any large tensor

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


def read_ahead(chunks: Iterator[RowChunk], hashes: TensorHashes | None = None) -> Iterator[int]:
    """Read all chunks, across file borders, and use them in order on this thread. Yields the bytes of each used chunk.

    Raises CheckpointError for a chunk that holds NaN or infinity, or whose bytes do not have their hash in `hashes`.
    """
    pending: deque[tuple[RowChunk, Future[torch.Tensor]]] = deque()
    waiting = 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="read") as pool:
        try:
            for chunk in chunks:
                while pending and waiting + chunk.size > _AHEAD:
                    waiting -= pending[0][0].size
                    yield _finish(*pending.popleft())
                pending.append((chunk, pool.submit(_read, chunk, _buffer(chunk), hashes)))
                waiting += chunk.size
            while pending:
                yield _finish(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _finish(chunk: RowChunk, read: "Future[torch.Tensor]") -> int:
    chunk.use(read.result())
    return chunk.size


def _buffer(chunk: RowChunk) -> torch.Tensor:
    """Allocate memory to read into, on the thread that frees it: the C library keeps freed memory per allocating thread."""
    if chunk.into is not None:
        return chunk.into
    return torch.empty((chunk.stop - chunk.start, *chunk.tensor.shape[1:]), dtype=DTYPES[chunk.tensor.dtype])


def _read(chunk: RowChunk, buffer: torch.Tensor, hashes: TensorHashes | None) -> torch.Tensor:
    """Fill `buffer` with plain reads: pages of a mapped file would count as this process's memory."""
    tensor = chunk.tensor
    if not buffer.numel():
        return buffer
    data = buffer.detach().view(torch.uint8).numpy().reshape(-1)
    start = tensor.offset + chunk.start * tensor.row_bytes
    read_into(tensor.file, start, data.data)
    if hashes is not None:
        hashes.check(tensor, start, data.data)
    _check_finite(tensor, data)
    return buffer


def _check_finite(tensor: StoredTensor, data: np.ndarray) -> None:
    """Raise CheckpointError if bytes of a tensor hold NaN or infinity.

    They may stay hidden otherwise: in an expert that is seldom chosen, or in an index key that is then never selected.
    """
    for first in range(0, len(data), _CHECKED):
        part = data[first : first + _CHECKED]
        if any(part.view(kind).max() >= least for kind, least in _NON_FINITE[tensor.dtype]):
            problem = f"tensor {short_repr(tensor.name)} holds NaN or infinity"
            raise CheckpointError(tensor.file, f"{problem}; expected finite values")


_CONVERTED = 2**19  # elements that are converted at a time: 2 MiB in fp32


def load_model(
    path: str | Path,
    precision: Precision = "exact",
    backend: str = "auto",
    device: str | torch.device = "cpu",
    config_overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
    verify_hashes: bool = True,
    mtp: bool = False,
    deterministic: bool = False,
    config: ModelConfig | None = None,
) -> Transformer:
    """Load the model of a checkpoint directory (config.json and safetensors) in `precision` on `device`.

    ranks: the job that shares the model; None: this process holds all of it. config: None stands for the directory's config.json.
    config_overrides: fields of `ModelConfig`. verify_hashes: compare the bytes read with the checkpoint's manifest, if it has one.
    mtp: also load the MTP layer, which drafts. deterministic: see `Compute`. Peak memory is the parameters plus less than twice the
    largest tensor. Raises ConfigError or CheckpointError, each of one line. Headers are checked before anything is allocated; NaN,
    infinity and changed bytes are found while reading.
    """
    directory = Path(path)
    config = (config or read_config(directory)).with_overrides(**(config_overrides or {}))
    config.check_precision(precision)
    tables = find_mtp_tables(directory, config) if mtp else None
    plan = Plan(config, ranks.rank, ranks.size, tables) if ranks else Plan(config, mtp=tables)
    sources, hashes = locate(plan, directory, verify_hashes)
    model = build_model(config, precision, backend, device, ranks, tables, deterministic)
    load_weights(model, sources, config, progress, hashes)
    return model


@torch.no_grad()
def load_weights(
    model: torch.nn.Module,
    sources: list[TensorSource],
    config: ModelConfig,
    progress: Progress | None = None,
    hashes: TensorHashes | None = None,
) -> None:
    """Fill every parameter of `model` in its dtype, verify `hashes`, and call `progress` after every row chunk.

    Into a float parameter, FP8 is dequantised and other dtypes are cast. Into an e4m3 parameter, FP8 is copied with its scales
    and other dtypes are quantised.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    if config.tie_word_embeddings:  # a shared table is read once
        head = targets.get("lm_head.weight")
        if head is None or head.data_ptr() == targets["embed_tokens.weight"].data_ptr():
            targets.pop("lm_head.weight", None)
            sources = [each for each in sources if each.shard.spec.parameter != "lm_head.weight"]
    filled = dict.fromkeys(targets, 0)
    total = sum(source.size for source in sources)
    done = 0
    unusual: list[str] = []  # names of scales that are not powers of two, although the configuration says so

    def work() -> Iterator[RowChunk]:
        # In the order on disk: file by file, each from its start to its end.
        for source in sorted(sources, key=lambda each: (str(each.weight.file), each.weight.offset)):
            spec = source.shard.spec
            assert spec.parameter is not None
            target = place(targets[spec.parameter], spec, spec.row, spec.shape)
            filled[spec.parameter] += target.numel()
            scales = None
            if target.dtype == torch.float8_e4m3fn:
                name = scale_parameter(spec.parameter)
                scales = place(targets[name], spec, spec.scale_row, spec.scale_shape)
                filled[name] += scales.numel()
            yield from _ParameterLoader(source, target, scales, config.ue8m0_scales, unusual).work()

    for size in read_ahead(work(), hashes):
        done += size
        if progress is not None and size:
            progress(done, total)
    for name, target in targets.items():
        assert filled[name] == target.numel(), f"{filled[name]} of {target.numel()} elements of {name} were filled"
    if unusual:
        warnings.warn(
            f"{len(unusual)} tensors of scales, the first {short_repr(unusual[0])}, hold values that are no powers of two; "
            "expected powers of two, as scale_fmt is 'ue8m0' in config.json: they are used as they are",
            stacklevel=3,
        )


def place(parameter: torch.Tensor, spec: TensorSpec, row: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the part of a parameter (or of its scales) that a tensor fills."""
    stacked = parameter if spec.expert is None else parameter[spec.expert]
    part = stacked[row : row + shape[0]]
    assert part.shape == shape, f"{spec.parameter} is {list(part.shape)}; expected {list(shape)} for {spec.name}"
    return part


class _ParameterLoader:
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
        self._scale: torch.Tensor | None = None  # this rank's part of the stored scales, on the target's device

    def work(self) -> Iterator[RowChunk]:
        """The row chunks to read, in order."""
        weight, scale, target = self._source.weight, self._source.scale, self._target
        if scale is not None:
            yield RowChunk(scale, 0, scale.shape[0], self._take_scale)
        # Data that needs no conversion and no slicing by columns is read directly into the parameter.
        plain = target.dtype == DTYPES[weight.dtype] and target.shape[1:] == weight.shape[1:]
        direct = plain and target.device.type == "cpu" and target.is_contiguous()
        step = max(FP8_BLOCK, _CONVERTED // max(prod(weight.shape[1:]), 1) // FP8_BLOCK * FP8_BLOCK)
        first, last = self._source.rows
        for start, stop in row_chunks(weight, first, last):
            chunk = slice(start - first, stop - first)
            use = partial(self._take_chunk, chunk, stop - start if plain else step)
            yield RowChunk(weight, start, stop, use, target[chunk] if direct else None)

    def _take_scale(self, scale: torch.Tensor) -> None:
        source = self._source
        assert source.scale is not None
        if (scale <= 0).any():
            problem = f"tensor {short_repr(source.scale.name)} holds scales of 0 or less, the least {scale.min():g}"
            raise CheckpointError(source.scale.file, f"{problem}; expected positive ones")
        if self._ue8m0 and (scale.frexp().mantissa != 0.5).any():
            self._unusual.append(source.scale.name)
        kept = source.shard.kept
        if kept is not None:
            scale = narrow(scale, kept.of_scales())
        if self._scale_target is not None:
            self._scale_target.copy_(scale)
        self._scale = scale.to(self._target.device)

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
        if self._scale is not None and scale_target is None:
            rows = dequantize_weight(rows.to(target.device), self._scale[block_rows], target.dtype)
        elif self._scale is None and scale_target is not None:
            rows, scale_target[block_rows] = quantize_weight(rows.to(target.device), self._ue8m0)
        if rows.data_ptr() != target.data_ptr():
            target.copy_(rows)


def narrow(tensor: torch.Tensor, kept: ShardSlice) -> torch.Tensor:
    """A slice of a tensor."""
    return tensor.narrow(kept.dim, kept.start, kept.size)
