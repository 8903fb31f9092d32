"""Random cache contents in place of those of long prompts, to measure decoding without computing the prompts first."""

import torch

from ...kernels.cache_write import write_index_cache, write_latent_cache
from ...kernels.errors import ArgumentError
from ...kernels.registry import Preference
from ..config import ModelConfig
from ..metadata import PAGE_SIZE, LayerCache

_ROWS = 65536  # tokens that are generated at a time


@torch.inference_mode()
def fill_synthetic_caches(
    config: ModelConfig, caches: list[LayerCache], backend: str | Preference = "auto", seed: int = 0
) -> None:
    """Write a random latent and index key to every slot of every layer, in the caches' precision.

    They depend only on the seed and the kind of device, so that the caches of several ranks agree, as real ones do. ValueError if
    the caches are checked.
    """
    if any(cache.stamps for cache in caches):
        raise ArgumentError("check_cache", "True", "False, as random entries belong to no tokens that could be checked")
    device, plain = caches[0].latent.device, caches[0].latent.dtype
    dtype = torch.bfloat16 if plain == torch.uint8 else plain
    generator = torch.Generator(device).manual_seed(seed)
    slots = caches[0].latent.shape[0] * PAGE_SIZE
    rope = config.qk_rope_head_dim
    weight = torch.ones(config.kv_lora_rank, device=device)
    cos, sin = torch.ones(_ROWS, rope // 2, device=device), torch.zeros(_ROWS, rope // 2, device=device)
    for cache in caches:
        for first in range(0, slots, _ROWS):
            some = torch.arange(first, min(first + _ROWS, slots), device=device)
            angles = cos[: len(some)], sin[: len(some)]
            widths = (config.kv_lora_rank + rope, config.index_head_dim)
            kv, keys = (
                torch.randn(len(some), width, generator=generator, dtype=dtype, device=device) for width in widths
            )
            write_latent_cache(kv, weight, 1e-6, *angles, cache.latent, some, backend=backend)
            write_index_cache(keys, *angles, cache.index, some, backend=backend)
