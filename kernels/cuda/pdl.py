"""Facts that launchers state about programmatic dependent launch (PDL, see common/pdl.cuh).

A kernel starts once all CTAs of the previous kernel have allowed it or have ended. Most kernels allow the next one at once. FP8
products, and fp32 products of up to 512 tokens, first wait for the end of all earlier kernels, unless they run at the same time
as the previous one. So data written before the last other product is complete when a later kernel starts. That kernel may read
it without waiting:

- the index cache by the scores of a decode step, because the projection of the index queries comes between;
- the operand of a product `beside_previous`: the compressed query after the selection, because the same projection comes between;
  the shared expert's input after the choice of experts, because the router's product comes between.

tests/model/test_launch_order.py checks this in the order in which the model launches; tests/kernels/test_compiled.py checks when
products let the next kernel start.
"""

import torch

from ..alignment import is_aligned


def inputs_are_static() -> bool:
    """Return whether a kernel may read lengths, block table and caches before the previous kernel on the stream has ended.

    It may in a step that is being captured in a CUDA graph: lengths and table were copied before it.
    """
    return torch.cuda.is_current_stream_capturing()


def weights_are_static(*weights: torch.Tensor) -> bool:
    """Return whether a kernel may read these weights before the previous kernel on the stream has ended.

    It may in a step that is being captured in a CUDA graph: the weights were made long ago. Weights that are not aligned are
    copied by the kernel right before, so they are not static.
    """
    return torch.cuda.is_current_stream_capturing() and is_aligned(*weights)
