"""FP8 as in the released model: block-scaled weights for export, and simulated rounding for measurement."""

import torch
import torch.nn.functional as F


def power_of_two_scale(amax: torch.Tensor) -> torch.Tensor:
    """amax / 448 rounded up to a power of two."""
    return torch.exp2(torch.ceil(torch.log2(amax.clamp_min(1e-4) / 448.0)))


def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] → e4m3 of the same shape, fp32 scales [ceil(out/128), ceil(in/128)]; value · scale restores the weight."""
    rows, columns = weight.shape
    padded = F.pad(weight.float(), (0, -columns % 128, 0, -rows % 128))
    blocks = padded.view(padded.shape[0] // 128, 128, padded.shape[1] // 128, 128)
    scale = power_of_two_scale(blocks.abs().amax((1, 3)))
    quantized = (blocks / scale[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return quantized.view(padded.shape)[:rows, :columns].contiguous(), scale


def dequantize_weight(quantized: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    rows, columns = quantized.shape
    expanded = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return quantized.float() * expanded


def round_weight(weight: torch.Tensor) -> torch.Tensor:
    return dequantize_weight(*quantize_weight(weight)).to(weight.dtype)


def round_groups(x: torch.Tensor) -> torch.Tensor:
    """x after rounding to e4m3 with one power-of-two scale per 128 values of the last axis."""
    groups = x.float().unflatten(-1, (-1, 128))
    scale = power_of_two_scale(groups.abs().amax(-1, keepdim=True))
    return ((groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale).flatten(-2).to(x.dtype)
