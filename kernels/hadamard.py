"""The Hadamard transform, which spreads outliers over a head before the indexer's FP8 quantisation."""

from typing import NamedTuple

import torch

from .checks import FLOATS, check_rope, check_tensor
from .registry import Preference, choose


class Rotated(NamedTuple):
    """Heads after RoPE and the Hadamard transform, in FP8."""

    values: torch.Tensor  # [T, H, D] float8_e4m3fn
    scales: torch.Tensor  # fp32 [T, H, ceil(D / 128)]
    weights: torch.Tensor | None  # fp32 [T, H]: the weights given, times the scales


def _check_width(x: torch.Tensor) -> None:
    width = x.shape[-1]
    if width < 1 or width & (width - 1):
        raise ValueError(f"x has {width} columns; expected a power of two")


def hadamard_transform(x: torch.Tensor, scale: float, *, backend: str | Preference = "auto") -> torch.Tensor:
    """x [..., D] @ H_D * scale with the Sylvester matrix H_D, D a power of two; x fp32 or bf16, result in x's dtype."""
    check_tensor("x", x, (None,) * max(x.dim(), 1), FLOATS)
    _check_width(x)
    return choose("hadamard_transform", x, backend)(x, scale)


def rotate_quantize(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    ue8m0: bool = True,
    weights: torch.Tensor | None = None,
    *,
    backend: str | Preference = "auto",
) -> Rotated:
    """Make the indexer's queries: RoPE on each head's first dims, the Hadamard transform with scale D^-0.5, FP8 quantisation.

    x [T, H, D] fp32 or bf16, D a power of two; cos, sin [T, R/2] fp32 -> values [T, H, D], scales [T, H, ceil(D / 128)].
    RoPE is half-split (pairs i, i + R/2) unless `interleaved`. weights fp32 [T, H] are returned multiplied by the scales; they need
    D up to 128, one scale per head.
    """
    check_tensor("x", x, (None, None, None), FLOATS)
    _check_width(x)
    check_rope(cos, sin, x.shape[0], x.device)
    if weights is not None:
        check_tensor("weights", weights, tuple(x.shape[:2]), torch.float32, x.device)
        if x.shape[2] > 128:
            raise ValueError(f"x has {x.shape[2]} columns; expected at most 128, one scale per head, with weights")
    return Rotated(*choose("rotate_quantize", x, backend)(x, cos, sin, interleaved, ue8m0, weights))
