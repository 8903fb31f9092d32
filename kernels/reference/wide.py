"""Products of fp32 tensors on a GPU, in fp64 and rounded once.

cuBLAS chooses the order of an fp32 sum by the product's shape, so the same row has other last bits in another batch. A few
layers later, log-probabilities differ by more than 1e-5. In fp64 the order hardly ever decides a bit of the rounded result.
Only models in exact precision compute in fp32 on a GPU. Hopper GPUs multiply fp64 as fast; others may take much longer.
"""

import torch


def widened(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a product's operands: in fp64 if they are fp32 tensors on a GPU, else unchanged."""
    return tuple(x.double() if x.is_cuda and x.dtype == torch.float32 else x for x in operands)
