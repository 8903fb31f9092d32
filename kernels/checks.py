"""Argument checks shared by the operations. A ValueError names the argument, its value and what was expected.

All operations treat block tables, lengths, slots and caches alike, in every backend:

- A wrong shape, dtype or device is refused.
- Values are looked at on a CPU. A page or slot outside the cache is refused, and so is a length beyond the block table or
  `max_context`. Columns of a block table after a sequence's length may hold anything.
- On a GPU, looking would wait for the device. There a wrong page or length gives wrong numbers for its own sequence, and no memory
  outside of the tensors is read: scores and selections end with the table, keys of a page outside are zeros or do not count.
  Slots to be read or written are the caller's promise, and references on a GPU raise torch's errors.
- Everywhere, an entry of `indices` outside the cache selects nothing, and ranges (`starts`, `ends`, `topk_length`) are cut to
  the columns that there are.
- Pages may lie apart where caches are read; some implementations copy such a cache. Caches that are written are contiguous.
"""

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
    if sizes != shape and (len(sizes) != len(shape) or any(map(_differs, shape, sizes))):
        expected = ", ".join("*" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {list(sizes)}; expected [{expected}]")
    dtype = tensor.dtype
    if dtype is not dtypes and (isinstance(dtypes, torch.dtype) or dtype not in dtypes):
        allowed = (dtypes,) if isinstance(dtypes, torch.dtype) else dtypes
        raise ValueError(f"{name} has dtype {dtype}; expected {' or '.join(str(d) for d in allowed)}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; expected {device} like the other arguments")
    if sizes and tensor.stride()[-1] != 1 and tensor.numel():
        raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension; expected 1; call .contiguous()")


def check_values(name: str, values: torch.Tensor, most: int, why: str, *counts: int, least: int = 0) -> None:
    """Raise a ValueError, only on a CPU, unless all `values` are `least` to `most`. why, with its counts: what sets `most`."""
    if not values.is_cpu or not values.numel():
        return
    array = values.numpy()  # whose reductions of a few numbers take a third of torch's time
    low, high = int(array.min()), int(array.max())
    if low < least or high > most:
        expected = f"{least} to {most}" if most >= least else "none"
        raise ValueError(f"{name} holds {low if low < least else high}; expected {expected}, {why.format(*counts)}")


def check_pages(
    name: str,
    lengths: torch.Tensor,
    block_table: torch.Tensor,
    page_size: int,
    pages: int | None,
    max_context: int | None = None,
) -> None:
    """Check contexts of `lengths` [B], an argument called `name`, in pages of block_table [B, W]. Values only on a CPU.

    pages: how many the cache has. None: any number whose slots fit into int32.
    """
    if not block_table.is_cpu:
        return
    held, width = block_table.shape[1] * page_size, block_table.shape[1]
    if max_context is not None and max_context < held:
        check_values(name, lengths, max_context, "max_context is {}", max_context)
    else:
        check_values(name, lengths, held, "block_table has {} pages of {} for a sequence", width, page_size)
    if not block_table.numel():
        return
    array, most = block_table.numpy(), MOST_SLOTS // page_size - 1 if pages is None else pages - 1
    if array.min() < 0 or array.max() > most:
        used = torch.arange(width) * page_size < lengths[:, None]
        why = "slots are int32" if pages is None else "the cache has {} pages"
        check_values("block_table", block_table[used], most, why, most + 1)


def check_slots(name: str, slots: torch.Tensor, shape: Sequence[int | None], cache: torch.Tensor) -> None:
    """Check int64 slots of this shape, of a cache [P, page, 1, D]. Values only on a CPU."""
    check_tensor(name, slots, shape, torch.int64, cache.device)
    pages, page_size = cache.shape[:2]
    check_values(name, slots, pages * page_size - 1, "the cache has {} pages of {}", pages, page_size)


def check_whole_pages(cache: torch.Tensor) -> None:
    """Raise a ValueError for an index-key cache in bytes whose pages have gaps: scales follow the keys of a whole page."""
    if cache.dtype == torch.uint8 and cache.shape[1] > 1 and cache.stride(1) != cache.shape[3]:
        raise ValueError(f"cache has strides {cache.stride()}; expected the bytes of a page in one piece")


def check_contiguous(name: str, cache: torch.Tensor) -> None:
    """Raise a ValueError for a cache to write to whose pages lie apart."""
    if not cache.is_contiguous():
        raise ValueError(f"{name} has strides {cache.stride()}; expected a contiguous tensor")


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


def check_rope(cos: torch.Tensor, sin: torch.Tensor, tokens: int, device: torch.device) -> None:
    """Check the tables of RoPE, fp32 [T, R/2]."""
    check_tensor("cos", cos, (tokens, None), torch.float32, device)
    check_tensor("sin", sin, tuple(cos.shape), torch.float32, device)


def check_dtype(name: str, dtype: torch.dtype, allowed: Sequence[torch.dtype]) -> None:
    """Raise a ValueError unless the kernels can store results of `dtype`, an argument called `name`."""
    if dtype not in allowed:
        raise ValueError(f"{name} is {dtype}; expected {' or '.join(str(d) for d in allowed)}")


FLOATS = (torch.float32, torch.bfloat16)
MOST_SLOTS = 2**31
