"""Reads rows of stored tensors with a few threads, a little ahead of their use."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO

import torch

from ..errors import CheckpointError
from .safetensors import StoredTensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}

_THREADS = 4  # a single thread would leave the disk or the network idle between its reads
_AHEAD = 2**24  # bytes that may be read but not yet used: little compared with any large tensor


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
        return (self.stop - self.start) * (self.tensor.size // max(self.tensor.shape[0], 1))


def read_ahead(chunks: Iterator[RowChunk]) -> Iterator[int]:
    """Read all chunks, across file borders, and use them in order on this thread. Yields the bytes of each used chunk."""
    pending: deque[tuple[RowChunk, Future[torch.Tensor]]] = deque()
    waiting = 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="read") as pool:
        try:
            for chunk in chunks:
                while pending and waiting + chunk.size > _AHEAD:
                    waiting -= pending[0][0].size
                    yield _finish(*pending.popleft())
                pending.append((chunk, pool.submit(_read, chunk, _buffer(chunk))))
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


def _read(chunk: RowChunk, buffer: torch.Tensor) -> torch.Tensor:
    """Fill `buffer` with plain reads: pages of a mapped file would count as this process's memory."""
    tensor = chunk.tensor
    if not buffer.numel():
        return buffer
    data = buffer.detach().view(torch.uint8).numpy().reshape(-1).data
    start = tensor.offset + chunk.start * (tensor.size // tensor.shape[0])
    try:
        # The file is opened for each read: a checkpoint may have more files than a process may hold open.
        with FileIO(tensor.file) as file:
            file.seek(start)
            done = 0
            while done < len(data):  # one call returns at most 2 GiB
                count = file.readinto(data[done:])
                if not count:
                    problem = (
                        f"ends before byte {start + done + 1}; expected the length that it had when it was checked"
                    )
                    raise CheckpointError(tensor.file, problem)
                done += count
    except OSError as error:
        raise CheckpointError(tensor.file, f"can no longer be read ({error.strerror})") from error
    return buffer
