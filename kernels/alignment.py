"""Operands as the TMA takes them."""

import torch

ROW_BYTES = 16  # what rows have to start on a multiple of


def aligned_rows(x: torch.Tensor) -> torch.Tensor:
    """x [..., K], if all its rows start on 16-byte boundaries; else a copy, whose K is rounded up with zeros as far as need be."""
    size = x.element_size()
    if x.data_ptr() % ROW_BYTES == 0 and all(stride * size % ROW_BYTES == 0 for stride in x.stride()[:-1]):
        return x
    padding = -x.shape[-1] % (ROW_BYTES // size)
    raw = x.view(torch.uint8) if size == 1 else x  # FP8 tensors cannot be padded
    return torch.nn.functional.pad(raw, (0, padding)).view(x.dtype).contiguous()
