"""FP8 quantisation of weights in plain PyTorch."""

import torch
import torch.nn.functional as F

from .e4m3 import SHRUNK, row_parts, shrink
from .quantize import FP8_MAX, GROUP, scales_of

WEIGHT_AMAX_FLOOR = 1e-12


def quantize_weight(weight: torch.Tensor, ue8m0: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = weight.shape
    row_blocks, column_blocks = -(-rows // GROUP), -(-columns // GROUP)
    padding = (0, column_blocks * GROUP - columns, 0, row_blocks * GROUP - rows)
    blocks = F.pad(weight.float(), padding).view(row_blocks, GROUP, column_blocks, GROUP)
    scale = scales_of(blocks.abs().amax((1, 3)).clamp_min(WEIGHT_AMAX_FLOOR), ue8m0)
    values = (blocks / scale[:, None, :, None]).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return values.view(row_blocks * GROUP, column_blocks * GROUP)[:rows, :columns].contiguous(), scale


def dequantize_weight(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> None:
    rows, columns = weight.shape
    factors = scale / SHRUNK
    if weight.device.type != "cpu" or not factors.isfinite().all():
        scales = scale.repeat_interleave(GROUP, 0)[:rows].repeat_interleave(GROUP, 1)[:, :columns]
        out.copy_(weight.float() * scales)
        return
    for part in row_parts(weight, GROUP):  # in a block of rows
        numbers = out[part] if out.dtype == torch.float32 else torch.empty(weight[part].shape)
        shrink(weight[part], numbers)
        numbers.mul_(factors[part.start // GROUP].repeat_interleave(GROUP)[:columns])
        if numbers.dtype != out.dtype:
            out[part] = numbers
