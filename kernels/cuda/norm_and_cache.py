"""The query norm and the cache entries of a layer in one launch. Other shapes run operation by operation."""

import torch

from ..alignment import is_aligned
from ..build import load
from ..cache_write import write_index_cache, write_latent_cache
from ..fp32_ops import layer_norm
from ..quantize import rms_norm_quantize
from ..types import NewEntries
from .fp32_ops import MAX_WIDTH, fp32_linear
from .pdl import weights_are_static

QUERY, LATENT, ROPE, KEY, PAGE = 1536, 512, 64, 128, 64  # the dims that the kernel is written for
FEW_TOKENS = 64  # up to this many, the projection is a part of the launch


def norm_and_cache(new: NewEntries, one_order: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """one_order: of the projection, as in `fp32_linear`."""
    query, kv, keys, norms, cos, sin, caches, interleaved, ue8m0, projection = new
    dims = query.shape[1], norms.latent.shape[0], 2 * cos.shape[1], keys.shape[1], caches.latent.shape[1]
    weights = norms.query, norms.latent, norms.key, norms.key_bias
    fits = dims == (QUERY, LATENT, ROPE, KEY, PAGE) and caches.keys.shape[1] == PAGE and len(query) > 0 < len(kv)
    fits = fits and query.dtype == torch.bfloat16 and cos.is_contiguous() and sin.is_contiguous()
    if not fits or not is_aligned(query, kv, keys, *weights, caches.latent.view(-1), caches.keys.view(-1)):
        return _in_parts(new, one_order)
    queries = query.shape[0]
    codes = query.new_empty(queries, QUERY, dtype=torch.float8_e4m3fn)
    scales = cos.new_empty(queries, QUERY // 128)
    static = weights_are_static(*weights)
    fused, projected = None, None
    if projection is not None:
        x, weight, _ = projection
        few = queries <= FEW_TOKENS and x.dtype == torch.bfloat16 and x.shape[1] <= MAX_WIDTH and x.shape[1] % 8 == 0
        if few and is_aligned(x, weight) and weight.is_contiguous() and len(weight):
            fused = projection
            projected = weight.new_empty(queries, len(weight))
            static = static and weights_are_static(weight)
    stamps = *(caches.latent_stamp or (None, None)), *(caches.key_stamp or (None, None))
    operands = query, kv, keys, *weights, cos, sin, caches.latent, caches.keys, caches.slots.contiguous(), *stamps
    options = norms.eps, norms.key_eps, ue8m0, interleaved, static
    product = (None, None, None, 1.0) if fused is None else (fused.x, fused.weight, projected, fused.scale)
    load("norm_and_cache").norm_and_cache(*operands, codes, scales, *options, *product, one_order)
    if projection is not None and fused is None:
        projected = fp32_linear(*projection, one_order)
    return codes, scales, projected


def _in_parts(new: NewEntries, one_order: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    query, kv, keys, norms, cos, sin, caches, interleaved, ue8m0, projection = new
    write_latent_cache(kv, norms.latent, norms.eps, cos, sin, caches.latent, caches.slots, caches.latent_stamp)
    keys = layer_norm(keys, norms.key, norms.key_bias, norms.key_eps)
    write_index_cache(keys, cos, sin, caches.keys, caches.slots, interleaved, caches.key_stamp)
    values, scales = rms_norm_quantize(query, norms.query, norms.eps, ue8m0).quantized
    return values, scales, None if projection is None else fp32_linear(*projection, one_order)
