"""FP8 as in the released model: block-scaled weights."""

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
