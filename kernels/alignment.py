"""Alignment of rows: the compiled kernels copy 16 bytes at a time, so rows must start on 16-byte boundaries."""

from math import gcd

import torch

ROW_BYTES = 16


def is_aligned(*tensors: torch.Tensor, multiple: int = ROW_BYTES) -> bool:
    """Check that every tensor and each of its rows (all dims but the last) starts at a multiple of `multiple` bytes."""
    return not any([x.data_ptr() % multiple or gcd(*x.stride()[:-1]) * x.element_size() % multiple for x in tensors])


def aligned_rows(x: torch.Tensor) -> torch.Tensor:
    """Return x [..., K] if it is aligned, else a contiguous copy with zeros after each row, so that rows are aligned."""
    if is_aligned(x):
        return x
    size = x.element_size()
    padding = -x.shape[-1] % (ROW_BYTES // size)
    raw = x.view(torch.uint8) if size == 1 else x  # torch cannot pad FP8 tensors
    return torch.nn.functional.pad(raw, (0, padding)).view(x.dtype).contiguous()


def check_aligned(**tensors: torch.Tensor) -> None:
    """Raise a ValueError for the first tensor whose rows are not aligned. The stride of a dimension of size 1 does not matter."""
    for name, tensor in tensors.items():
        if not is_aligned(tensor) and not is_aligned(tensor.squeeze()):
            raise ValueError(
                f"{name} has strides {list(tensor.stride())} and starts at byte {tensor.data_ptr() % ROW_BYTES} of "
                f"{ROW_BYTES}; expected rows aligned to {ROW_BYTES} bytes; call .contiguous()"
            )
