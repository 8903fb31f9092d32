"""The paged caches: the layout of a token's records, and the operations that write and read them.

Latent cache, uint8 [P, 64, 1, 656] (FlashMLA's layout): bytes 0-511 are the e4m3 latent, 512-527 four fp32 scales (one per 128
dims), 528-655 the 64 bf16 RoPE dims. Index-key cache, uint8 [P, 64, 1, 132] (DeepGEMM's layout): each page holds its 64 keys of
128 e4m3 values first, then their 64 fp32 scales. bf16 and fp32 caches hold plain rows. Scales are powers of two. A token's slot is
page * page_size + offset; checks.py says what holds for slots outside the cache.

With a `stamp`, the launch that writes the entries also stores their stamps (cache_stamps.py).
"""

import torch

from .checks import FLOATS, check_contiguous, check_rope, check_slots, check_tensor, check_whole_pages
from .reference.quantize import GROUP
from .registry import Preference, choose
from .types import Stamp


def latent_record_bytes(latent_dim: int, rope_dim: int) -> int:
    """Bytes of a token in the FP8 latent cache: 656 for the released model's 512 + 64 dims."""
    return latent_dim + latent_dim // 128 * 4 + 2 * rope_dim


def index_record_bytes(head_dim: int) -> int:
    """Bytes of a token in the FP8 index-key cache: 132 for the released model's 128 dims."""
    return head_dim + 4


def _check_cache(cache: torch.Tensor, record: int, plain: int, device: torch.device) -> None:
    width = record if cache.dtype == torch.uint8 else plain
    check_tensor("cache", cache, (None, None, 1, width), (torch.uint8, *FLOATS), device)
    check_contiguous("cache", cache)


def check_stamp(stamp: Stamp | None, slots: torch.Tensor) -> None:
    if stamp is None:
        return
    column, values = stamp
    check_tensor("stamp.column", column, (None,), torch.int32, slots.device)
    check_tensor("stamp.values", values, tuple(slots.shape), torch.int32, slots.device)


def write_latent_cache(
    kv: torch.Tensor,
    norm_weight: torch.Tensor,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    stamp: Stamp | None = None,
    *,
    backend: str | Preference = "auto",
) -> None:
    """Apply RMSNorm to the latent and RoPE (interleaved pairs) to the RoPE dims, and write both to the cache in its precision.

    kv [T, L + R] is the output of kv_a_proj; norm_weight fp32 [L]; cos, sin fp32 [T, R/2]; slots int64 [T], all different.
    """
    latent_dim = norm_weight.shape[0]
    rope_dim = 2 * cos.shape[1]
    check_tensor("kv", kv, (None, latent_dim + rope_dim), FLOATS)
    check_tensor("norm_weight", norm_weight, (None,), torch.float32, kv.device)
    check_rope(cos, sin, kv.shape[0], kv.device)
    if cache.dtype == torch.uint8 and latent_dim % GROUP:
        raise ValueError(f"norm_weight has {latent_dim} elements; expected a multiple of {GROUP} for an FP8 cache")
    _check_cache(cache, latent_record_bytes(latent_dim, rope_dim), latent_dim + rope_dim, kv.device)
    check_slots("slots", slots, (kv.shape[0],), cache)
    check_stamp(stamp, slots)
    choose("write_latent_cache", kv, backend)(kv, norm_weight, eps, cos, sin, cache, slots, stamp)


def gather_latents(
    cache: torch.Tensor, slots: torch.Tensor, latent_dim: int, dtype: torch.dtype, *, backend: str | Preference = "auto"
) -> torch.Tensor:
    """Read the latents and RoPE dims of `slots` (int64 [...]) from the cache -> [..., L + R] in `dtype`."""
    check_tensor("cache", cache, (None, None, 1, None), (torch.uint8, *FLOATS))
    if cache.dtype == torch.uint8 and latent_dim % GROUP:
        raise ValueError(f"latent_dim is {latent_dim}; expected a multiple of {GROUP} for an FP8 cache")
    check_slots("slots", slots, (None,) * slots.dim(), cache)
    return choose("gather_latents", cache, backend)(cache, slots, latent_dim, dtype)


def write_index_cache(
    keys: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    interleaved: bool = False,
    stamp: Stamp | None = None,
    *,
    backend: str | Preference = "auto",
) -> None:
    """Apply RoPE to the first dims of the index keys and write them to their slots; for an FP8 cache also the Hadamard transform.

    keys [T, D] after LayerNorm; cos, sin fp32 [T, R/2]; slots int64 [T], all different. RoPE is half-split unless `interleaved`.
    """
    check_tensor("keys", keys, (None, None), FLOATS)
    check_rope(cos, sin, keys.shape[0], keys.device)
    if cache.dtype == torch.uint8 and (keys.shape[1] & (keys.shape[1] - 1) or keys.shape[1] > GROUP):
        raise ValueError(f"keys has {keys.shape[1]} columns; expected a power of two up to {GROUP} for an FP8 cache")
    _check_cache(cache, index_record_bytes(keys.shape[1]), keys.shape[1], keys.device)
    check_slots("slots", slots, (keys.shape[0],), cache)
    check_stamp(stamp, slots)
    choose("write_index_cache", keys, backend)(keys, cos, sin, cache, slots, interleaved, stamp)


def gather_index_keys(
    cache: torch.Tensor, slots: torch.Tensor, *, backend: str | Preference = "auto"
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Read the index keys [N, D] of `slots` (int64 [N]) in the cache's dtype, and their fp32 scales [N] if the cache is FP8."""
    check_tensor("cache", cache, (None, None, 1, None), (torch.uint8, *FLOATS))
    check_whole_pages(cache)
    check_slots("slots", slots, (None,), cache)
    keys, scales = choose("gather_index_keys", cache, backend)(cache, slots)
    return keys, scales
