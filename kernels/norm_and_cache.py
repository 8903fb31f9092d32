"""The step after a layer's first projections: the norm of MLA's compressed query, and the cache entries of the new tokens.

Only in FP8 precision. One launch replaces five operations, whose formulas are in quantize.py, cache_write.py
and fp32_ops.py.
"""

import torch

from .cache_write import check_stamp, index_record_bytes, latent_record_bytes
from .checks import FLOATS, check_contiguous, check_rope, check_slots, check_tensor
from .registry import Preference, choose
from .types import Caches, Fp32Projection, NewEntries, Norms, Quantized


def norm_and_cache(
    query: torch.Tensor,
    kv: torch.Tensor,
    keys: torch.Tensor,
    norms: Norms,
    cos: torch.Tensor,
    sin: torch.Tensor,
    caches: Caches,
    interleaved: bool = False,
    ue8m0: bool = True,
    projection: Fp32Projection | None = None,
    *,
    backend: str | Preference = "auto",
) -> tuple[Quantized, torch.Tensor | None]:
    """Norm and quantise `query`, write the cache entries of `kv` and `keys`, and compute `projection` if there is one.

    query [t, Q], kv [T, L + R] and keys [T, D] are the outputs of q_a_proj, kv_a_proj and the indexer's wk; cos, sin fp32 [T, R/2];
    the index keys' RoPE is half-split unless `interleaved` -> the query as an operand, and the projection fp32 [t, N]. t is T, or
    where ranks divide the tokens, this rank's number of them.
    """
    check_tensor("query", query, (None, None), FLOATS)
    queries, tokens, device = len(query), len(kv), query.device
    check_rope(cos, sin, tokens, device)
    latent, rope = norms.latent.shape[0], 2 * cos.shape[1]
    check_tensor("kv", kv, (tokens, latent + rope), query.dtype, device)
    check_tensor("keys", keys, (tokens, None), query.dtype, device)
    widths = {"query": query.shape[1], "latent": latent, "key": keys.shape[1], "key_bias": keys.shape[1]}
    for name, width in widths.items():
        check_tensor(f"norms.{name}", getattr(norms, name), (width,), torch.float32, device)
    for name, record in (("latent", latent_record_bytes(latent, rope)), ("keys", index_record_bytes(keys.shape[1]))):
        cache = getattr(caches, name)
        check_tensor(f"caches.{name}", cache, (None, None, 1, record), torch.uint8, device)
        check_contiguous(f"caches.{name}", cache)
        check_slots("caches.slots", caches.slots, (tokens,), cache)
    check_stamp(caches.latent_stamp, caches.slots)
    check_stamp(caches.key_stamp, caches.slots)
    if projection is not None:
        check_tensor("projection.x", projection.x, (queries, None), FLOATS, device)
        check_tensor("projection.weight", projection.weight, (None, projection.x.shape[1]), torch.float32, device)
    if not tokens:
        values = query.new_empty(query.shape, dtype=torch.float8_e4m3fn)
        empty = Quantized(values, cos.new_empty(0, -(-query.shape[1] // 128)))
        return empty, None if projection is None else cos.new_empty(0, len(projection.weight))
    new = NewEntries(query, kv, keys, norms, cos, sin, caches, interleaved, ue8m0, projection)
    values, scales, projected = choose("norm_and_cache", query, backend)(new)
    return Quantized(values, scales), projected
