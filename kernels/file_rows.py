"""Reading rows of a file into a GPU's memory, on a Hopper GPU without Python between reads and copies."""

import torch

from .build import load


def read_rows(
    file: int, start: int, memory: torch.Tensor, places: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None
) -> int:
    """Read bytes of an open file, and copy them to their places on the GPU on the current stream.

    file: a descriptor. memory: pinned, uint8 [S]; as many bytes are read from byte `start`. places: int64 [n, 3] on the host, for
    one range after the other whether it belongs to `weight` (0) or `scale` (1), its first byte there, and its bytes, S in all.
    Returns S when the copies have ended; less, if the file ends before; or minus errno.
    """
    targets = weight.view(torch.uint8), None if scale is None else scale.view(torch.uint8)
    count: int = load("file_rows").read_rows(file, start, memory, places, *targets)
    return count
