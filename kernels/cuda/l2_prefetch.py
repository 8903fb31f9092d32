"""Which part of a weight a kernel brings into L2 for a later one."""

import torch

from ..alignment import ROW_BYTES, is_aligned

# The rest of L2, 50 MB on Hopper, is for what the kernels in between read (docs/layer-log.md).
MOST_BYTES = 32 << 20


def rows_ahead(weight: torch.Tensor | None) -> tuple[torch.Tensor | None, int]:
    """The bytes of weight [N, K] and n, for one of each n pieces of it, up to MOST_BYTES in all; (None, 0) if none can be brought.

    A piece is a row or a few, so that a product finds an equal part of each of its tiles in L2.
    """
    if weight is None or not weight.numel() or not is_aligned(weight):
        return None, 0
    if weight.shape[1] * weight.element_size() % ROW_BYTES:
        return None, 0
    return weight.view(torch.uint8), -(-weight.nbytes // MOST_BYTES)
