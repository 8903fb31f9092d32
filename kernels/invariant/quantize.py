"""The gated activation, batch-invariant.

torch's silu and sigmoid use other code for the last elements of a tensor; its exp does not.
"""

import torch

from ..reference.quantize import quantize_blocks


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)), every step rounded."""
    return (-x).exp_().add_(1).reciprocal_()


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, -1)
    return (gate / (-gate).exp_().add_(1) * up).to(gate_up.dtype)


def swiglu_quantize(
    gate_up: torch.Tensor, ue8m0: bool, count: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    return quantize_blocks(swiglu(gate_up), ue8m0)
