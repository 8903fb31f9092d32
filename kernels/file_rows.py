"""Reading rows of files into a GPU's memory, on a Hopper GPU by threads that run no Python."""

from collections.abc import Callable

import torch

from .build import load

RowReader = Callable[[int, int, torch.Tensor, torch.Tensor, torch.Tensor | None], int]


def row_reader(device: torch.device, threads: int) -> RowReader:
    """Start threads for a device, which end with the function that is returned. Several Python threads may call it at a time.

    function(file, start, places, weight, scale) reads bytes of an open file, a descriptor, from byte `start` on, and copies them to
    their places on the GPU on the current stream. weight, scale: uint8; or no scale. places: int64 [n, 3] on the host, for one
    range after the other whether it belongs to `weight` (0) or `scale` (1), its first byte there, and its bytes, S in all. Returns
    S when the copies have ended; less, if the file ends before; or minus errno.
    """
    with torch.cuda.device(device):
        reader: RowReader = load("file_rows").reader(threads)
        return reader
