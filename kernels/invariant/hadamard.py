"""The Walsh-Hadamard transform, batch-invariant: `row_products` with the Sylvester matrix, which is symmetric."""

import torch

from ..reference.hadamard import sylvester
from ..reference.quantize import quantize_blocks
from ..reference.rope import rotate_index
from .products import row_products


def hadamard_transform(x: torch.Tensor, scale: float) -> torch.Tensor:
    rows = row_products(x.float().reshape(-1, x.shape[-1]), sylvester(x.shape[-1], x.device))
    return (rows * scale).view(x.shape).to(x.dtype)


def rotate_quantize(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, ue8m0: bool, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    rotated = rotate_index(x, cos, sin, interleaved)
    values, scales = quantize_blocks(hadamard_transform(rotated, x.shape[-1] ** -0.5), ue8m0)
    return values, scales, None if weights is None else weights * scales[..., 0]
