"""Reading rows of files into a GPU's memory, on a Hopper GPU by threads that run no Python."""

from collections.abc import Callable

import torch

from .build import load

Wait = Callable[[int], bool | None]
RowReader = Callable[[bytes, bytes, int, torch.Tensor, int, int, int], Wait]


def row_reader(device: torch.device, threads: int) -> RowReader:
    """Start threads for a device, which end with the last reference to the function that is returned and to all that it returned.

    function(path, identity, start, places, weight, scale, after) begins to read a file from byte `start` on, after the bytes of
    earlier calls, and to copy the bytes to their places on the GPU. identity: the file's size, mtime in ns and inode, 8 bytes each.
    places: int64 [n, 3] on the host, for each range in turn whether it belongs to `weight` (0) or `scale` (1), its first byte
    there, and its bytes. weight, scale: addresses. after: the handle of a CUDA event for which the copies wait, or 0.

    Returns wait(milliseconds): True when the copies have ended; False if the file is another one, ends before, or cannot be read;
    None if that takes longer. A negative number ends the read: what no thread has begun is forgotten. So does the end of the last
    reference to `wait`; until then the addresses and the event must stay valid.
    """
    with torch.cuda.device(device):
        reader: RowReader = load("file_rows").reader(threads)
        return reader
