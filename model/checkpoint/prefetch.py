"""Rows of stored tensors, read a little ahead of their use by a few threads."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO

import torch

from ..errors import CheckpointError
from .safetensors import StoredTensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}

_THREADS = 4  # one alone waits for the disk, or for the network, between its reads
_AHEAD = 2**24  # bytes that may wait to be used: small beside any large tensor


@dataclass(frozen=True)
class Rows:
    """Rows [start, stop) of a stored tensor, and what is done with them."""

    tensor: StoredTensor
    start: int
    stop: int
    use: Callable[[torch.Tensor], None]
    into: torch.Tensor | None = None  # where to read them: CPU memory, contiguous, of their dtype and shape

    @property
    def size(self) -> int:
        """Bytes to read."""
        return (self.stop - self.start) * (self.tensor.size // max(self.tensor.shape[0], 1))


def read_ahead(work: Iterator[Rows]) -> Iterator[int]:
    """Read all rows, across file borders, and use them one after the other, in order, on this thread; yields bytes read."""
    pending: deque[tuple[Rows, Future[torch.Tensor]]] = deque()
    waiting = 0
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="read") as pool:
        try:
            for rows in work:
                while pending and waiting + rows.size > _AHEAD:
                    waiting -= pending[0][0].size
                    yield _finish(*pending.popleft())
                pending.append((rows, pool.submit(_read, rows, _room(rows))))
                waiting += rows.size
            while pending:
                yield _finish(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _finish(rows: Rows, read: "Future[torch.Tensor]") -> int:
    rows.use(read.result())
    return rows.size


def _room(rows: Rows) -> torch.Tensor:
    """Allocated where it is freed: what the reading threads allocate, the C library would keep for each of them."""
    if rows.into is not None:
        return rows.into
    return torch.empty((rows.stop - rows.start, *rows.tensor.shape[1:]), dtype=DTYPES[rows.tensor.dtype])


def _read(rows: Rows, found: torch.Tensor) -> torch.Tensor:
    """Plain reads: mapped pages would count as this process's memory."""
    tensor = rows.tensor
    if not found.numel():
        return found
    data = found.detach().view(torch.uint8).numpy().reshape(-1).data
    start = tensor.offset + rows.start * (tensor.size // tensor.shape[0])
    try:
        # Opened for each read: a checkpoint may have more shards than a process may open.
        with FileIO(tensor.file) as file:
            file.seek(start)
            done = 0
            while done < len(data):  # one call returns at most 2 GiB
                count = file.readinto(data[done:])
                if not count:
                    raise CheckpointError(
                        tensor.file, f"ends before byte {start + done + 1}; it was complete when checked"
                    )
                done += count
    except OSError as error:
        raise CheckpointError(tensor.file, f"cannot be read any more ({error.strerror})") from error
    return found
