"""The norm of the compressed query and the writes to both caches, in plain PyTorch."""

import torch

from ..types import Caches, Fp32Projection, Norms
from .cache_write import write_index_cache, write_latent_cache
from .fp32_ops import fp32_linear, layer_norm
from .quantize import rms_norm_quantize


def norm_and_cache(
    query: torch.Tensor,
    kv: torch.Tensor,
    keys: torch.Tensor,
    norms: Norms,
    cos: torch.Tensor,
    sin: torch.Tensor,
    caches: Caches,
    interleaved: bool,
    ue8m0: bool,
    projection: Fp32Projection | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    write_latent_cache(kv, norms.latent, norms.eps, cos, sin, caches.latent, caches.slots, caches.latent_stamp)
    keys = layer_norm(keys, norms.key, norms.key_bias, norms.key_eps)
    write_index_cache(keys, cos, sin, caches.keys, caches.slots, interleaved, caches.key_stamp)
    _, _, values, scales = rms_norm_quantize(query, norms.query, norms.eps, ue8m0)
    return values, scales, None if projection is None else fp32_linear(*projection)
