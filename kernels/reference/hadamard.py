"""The Walsh-Hadamard transform as a matrix product with the Sylvester matrix."""

from functools import cache

import torch

from .quantize import quantize_blocks
from .rope import rotate_index


@cache
def sylvester(size: int, device: torch.device) -> torch.Tensor:
    matrix = torch.ones(1, 1, device=device)
    while matrix.shape[0] < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix


def hadamard_transform(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x.float() @ sylvester(x.shape[-1], x.device) * scale).to(x.dtype)


def rotate_quantize(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, ue8m0: bool, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    rotated = rotate_index(x, cos, sin, interleaved)
    values, scales = quantize_blocks(hadamard_transform(rotated, x.shape[-1] ** -0.5), ue8m0)
    return values, scales, None if weights is None else weights * scales[..., 0]
