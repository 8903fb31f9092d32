"""FP8 quantisation of activations in plain PyTorch."""

import math

import torch
import torch.nn.functional as F

from .wide import widened

FP8_MAX = 448.0  # largest e4m3fn value
GROUP = 128
ACTIVATION_AMAX_FLOOR = 1e-4  # keeps the scale of an all-zero group from being zero


def round_up_to_power_of_two(scale: torch.Tensor) -> torch.Tensor:
    """Round finite scales to ue8m0, on the bits of the float, so that exact powers of two are unchanged."""
    bits = scale.view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    return (exponent << 23).view(torch.float32)


def scales_of(amax: torch.Tensor, ue8m0: bool) -> torch.Tensor:
    """Return the scales of groups with largest absolute values `amax`: NaN for infinity and NaN, which makes all values NaN."""
    scale = amax / FP8_MAX
    return torch.where(scale.isfinite(), round_up_to_power_of_two(scale) if ue8m0 else scale, math.nan)


def quantize_blocks(x: torch.Tensor, ue8m0: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    width = x.shape[-1]
    groups = -(-width // GROUP)
    padded = F.pad(x.float(), (0, groups * GROUP - width)).unflatten(-1, (groups, GROUP))
    scale = scales_of(padded.abs().amax(-1).clamp_min(ACTIVATION_AMAX_FLOOR), ue8m0)
    values = (padded / scale[..., None]).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return values.flatten(-2)[..., :width].contiguous(), scale


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of x [T, D] with weight [D], computed in fp32 and rounded once to x's dtype."""
    # Contiguous, because torch sums a row in another order if its elements, or its neighbours', lie elsewhere.
    rows, scale = x.float().contiguous(), weight
    if x.dtype == torch.float32:
        rows, scale = widened(rows, weight)
    return F.rms_norm(rows, (x.shape[-1],), scale, eps).to(x.dtype)


def rms_norm_quantize(
    x: torch.Tensor, weight: torch.Tensor, eps: float, ue8m0: bool = True, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    total = x if residual is None else x + residual
    normed = rms_norm(total, weight, eps)
    return total, normed, *quantize_blocks(normed, ue8m0)


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of gate_up [..., 2I], computed in fp32 and rounded once to its dtype."""
    gate, up = gate_up.float().chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def swiglu_quantize(
    gate_up: torch.Tensor, ue8m0: bool = True, count: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    return quantize_blocks(swiglu(gate_up), ue8m0)
