"""Writes to and reads from the paged caches, in plain PyTorch. uint8 caches have the FP8 byte layouts of kernels/cache_write.py."""

from collections.abc import Callable
from typing import Any

import torch

from ..types import Stamp
from .hadamard import rotate_quantize
from .quantize import GROUP, quantize_blocks, rms_norm
from .rope import rotate_index, rotate_interleaved


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def write_latent_cache(
    kv: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    stamp: Stamp | None,
) -> None:
    width = norm_weight.shape[0]
    latent = rms_norm(kv[:, :width], norm_weight, eps)
    rope = rotate_interleaved(kv[:, width:], cos, sin)
    rows = cache.view(-1, cache.shape[-1])
    if cache.dtype == torch.uint8:
        values, scales = quantize_blocks(latent, True)
        rows[slots] = torch.cat((_bytes(values), _bytes(scales), _bytes(rope.to(torch.bfloat16))), 1)
    else:
        rows[slots] = torch.cat((latent, rope), 1).to(cache.dtype)
    if stamp is not None:
        stamp.column.index_copy_(0, slots, stamp.values)


def dequantize_latents(rows: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Token records uint8 [..., width + 4 * width/128 + 2R] -> latents and RoPE dims [..., width + R] in `dtype`."""
    scale_end = width + width // GROUP * 4
    values = rows[..., :width].contiguous().view(torch.float8_e4m3fn).to(torch.float32)
    scales = rows[..., width:scale_end].contiguous().view(torch.float32)
    rope = rows[..., scale_end:].contiguous().view(torch.bfloat16)
    latent = values.unflatten(-1, (-1, GROUP)) * scales[..., None]
    return torch.cat((latent.flatten(-2).to(dtype), rope.to(dtype)), -1)


def gather_latents(cache: torch.Tensor, slots: torch.Tensor, latent_dim: int, dtype: torch.dtype) -> torch.Tensor:
    if cache.is_contiguous():
        rows = cache.view(-1, cache.shape[-1]).index_select(0, slots.flatten()).view(*slots.shape, cache.shape[-1])
    else:  # pages lie apart
        rows = cache[slots // cache.shape[1], slots % cache.shape[1], 0]
    return dequantize_latents(rows, latent_dim, dtype) if cache.dtype == torch.uint8 else rows.to(dtype)


def split_pages(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a uint8 index cache [P, 64, 1, D + 4]: its keys [P, 64, D] and the bytes of its scales [P, 64, 4]."""
    pages, size, _, record = cache.shape
    flat = cache.view(pages, size * record)
    keys, scales = flat.split((size * (record - 4), size * 4), 1)
    return keys.unflatten(1, (size, record - 4)), scales.unflatten(1, (size, 4))


def write_index_cache(
    keys: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    interleaved: bool,
    stamp: Stamp | None,
    rotate: Callable[..., Any] = rotate_quantize,
) -> None:
    """rotate: an implementation of `rotate_quantize`."""
    if stamp is not None:
        stamp.column.index_copy_(0, slots, stamp.values)
    if cache.dtype != torch.uint8:
        cache.view(-1, cache.shape[-1])[slots] = rotate_index(keys, cos, sin, interleaved).to(cache.dtype)
        return
    values, scales, _ = rotate(keys, cos, sin, interleaved, True, None)
    page, offset = slots // cache.shape[1], slots % cache.shape[1]
    page_keys, page_scales = split_pages(cache)
    page_keys[page, offset] = _bytes(values)
    page_scales[page, offset] = _bytes(scales)


def gather_index_keys(cache: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    if cache.dtype != torch.uint8:
        return gather_latents(cache, slots, 0, cache.dtype), None
    page, offset = slots // cache.shape[1], slots % cache.shape[1]
    page_keys, page_scales = split_pages(cache)
    scales = page_scales[page, offset].view(torch.float32).squeeze(-1)
    return page_keys[page, offset].view(torch.float8_e4m3fn), scales
