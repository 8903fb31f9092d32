"""Reads rows of stored tensors with a few threads, a little ahead of their use, and checks what it reads."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import CheckpointError, short_repr
from .hashes import TensorHashes, read_into
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
    """Memory to read into, allocated on the thread that frees it: the C library keeps freed memory for each allocating thread."""
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

    They may hide otherwise: an expert that is seldom chosen, or an index key that is then never selected.
    """
    for first in range(0, len(data), _CHECKED):
        part = data[first : first + _CHECKED]
        if any(part.view(kind).max() >= least for kind, least in _NON_FINITE[tensor.dtype]):
            problem = f"tensor {short_repr(tensor.name)} holds NaN or infinity"
            raise CheckpointError(tensor.file, f"{problem}; expected finite values")
