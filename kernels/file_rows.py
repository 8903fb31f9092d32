"""Reading rows of files into a GPU's memory, on a Hopper GPU by threads that run no Python."""

import torch

from .build import load


class RowReader:
    """Threads that read for one device. Several Python threads may call `read` at a time."""

    def __init__(self, device: torch.device, threads: int) -> None:
        with torch.cuda.device(device):
            self._read = load("file_rows").reader(threads)

    def read(
        self, file: int, start: int, places: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None
    ) -> int:
        """Read bytes of an open file, and copy them to their places on the GPU on the current stream.

        file: a descriptor. places: int64 [n, 3] on the host, for one range of the file after the other, the first from byte `start`
        on: whether it belongs to `weight` (0) or `scale` (1), its first byte there, and its bytes, S in all. Returns S when the
        copies have ended; less, if the file ends before; or minus errno.
        """
        targets = weight.view(torch.uint8), None if scale is None else scale.view(torch.uint8)
        count: int = self._read(file, start, places, *targets)
        return count
