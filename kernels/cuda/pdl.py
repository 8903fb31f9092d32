"""What the launchers say about programmatic dependent launch (PDL, see common/pdl.cuh)."""

import torch

from ..alignment import is_aligned


def weights_are_static(*weights: torch.Tensor) -> bool:
    """Whether a kernel may read these weights before the previous kernel on the stream has ended.

    It may in a step that is being captured in a CUDA graph: the weights were made long ago. Weights that are not aligned are
    copied by the kernel right before, so they are not static.
    """
    return torch.cuda.is_current_stream_capturing() and is_aligned(*weights)
