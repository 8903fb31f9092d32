"""Argument checks shared by the operations. A ValueError names the argument, its value and what was expected."""

from collections.abc import Sequence

import torch


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int | None],
    dtypes: Sequence[torch.dtype] | torch.dtype,
    device: torch.device | None = None,
) -> None:
    """Check that `tensor` has this shape (None: any size), one of these dtypes, this device and contiguous last dims."""
    # This runs some fifty times a layer. Texts of errors that are not raised would be three quarters of its 4 us.
    sizes = tensor.shape
    if len(sizes) != len(shape) or any(map(_differs, shape, sizes)):
        expected = ", ".join("*" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {list(sizes)}; expected [{expected}]")
    allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else dtypes
    if tensor.dtype not in allowed:
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected {' or '.join(str(d) for d in allowed)}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; expected {device} like the other arguments")
    if sizes and tensor.stride(-1) != 1 and tensor.numel():
        raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension; expected 1; call .contiguous()")


def _differs(expected: int | None, size: int) -> bool:
    return expected is not None and expected != size


def check_sparse_options(
    q: torch.Tensor, rows: int, topk_length: torch.Tensor | None, attn_sink: torch.Tensor | None
) -> None:
    """Check the optional arguments that sparse prefill and decode share."""
    if topk_length is not None:
        check_tensor("topk_length", topk_length, (rows,), torch.int32, q.device)
    if attn_sink is not None:
        check_tensor("attn_sink", attn_sink, (q.shape[-2],), torch.float32, q.device)


def check_dtype(name: str, dtype: torch.dtype, allowed: Sequence[torch.dtype]) -> None:
    """Raise a ValueError unless the kernels can store results of `dtype`, an argument called `name`."""
    if dtype not in allowed:
        raise ValueError(f"{name} is {dtype}; expected {' or '.join(str(d) for d in allowed)}")


FLOATS = (torch.float32, torch.bfloat16)
