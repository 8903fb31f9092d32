"""The norm of the compressed query and the writes to both caches, in plain PyTorch."""

from collections.abc import Callable

import torch

from ..types import NewEntries
from .cache_write import write_index_cache, write_latent_cache
from .fp32_ops import fp32_linear, layer_norm
from .quantize import rms_norm_quantize


def norm_and_cache(new: NewEntries) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    return in_parts(new, write_index_cache, fp32_linear)


def in_parts(
    new: NewEntries, write_index: Callable[..., None], project: Callable[..., torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """`norm_and_cache` by these implementations of `write_index_cache` and `fp32_linear`."""
    query, kv, keys, norms, cos, sin, caches, interleaved, ue8m0, projection = new
    write_latent_cache(kv, norms.latent, norms.eps, cos, sin, caches.latent, caches.slots, caches.latent_stamp)
    keys = layer_norm(keys, norms.key, norms.key_bias, norms.key_eps)
    write_index(keys, cos, sin, caches.keys, caches.slots, interleaved, caches.key_stamp)
    _, _, values, scales = rms_norm_quantize(query, norms.query, norms.eps, ue8m0)
    return values, scales, None if projection is None else project(*projection)
