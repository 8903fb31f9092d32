"""Writes index keys to the paged cache, batch-invariant. kernels/reference writes latents so, too."""

import torch

from ..reference.cache_write import store_index_keys
from ..reference.rope import rotate_index
from ..types import Stamp
from .hadamard import rotate_quantize


def write_index_cache(
    keys: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    interleaved: bool,
    stamp: Stamp | None,
) -> None:
    if stamp is not None:
        stamp.column.index_copy_(0, slots, stamp.values)
    if cache.dtype != torch.uint8:
        cache.view(-1, cache.shape[-1])[slots] = rotate_index(keys, cos, sin, interleaved).to(cache.dtype)
        return
    values, scales, _ = rotate_quantize(keys, cos, sin, interleaved, True, None)
    store_index_keys(values, scales, cache, slots)
