"""The cache tensors that hold the pages: shapes and byte layouts.

fp8, per token and layer (sizes of the released model):
    latent  656 B: 512 e4m3 latent dims | 4 fp32 scales, one per 128 dims | 64 bf16 rope dims, rotated
    index   132 B, stored per page: 64 × 128 B of e4m3 keys, then 64 fp32 scales
bf16 and exact use plain rows: latent and rope dims side by side, and the index key.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch

from ....kernels.cache_write import write_index_cache, write_latent_cache
from ....kernels.errors import ArgumentError
from ....kernels.registry import Preference
from ....model.config import FP8_BLOCK, ModelConfig, Precision
from ....model.metadata import PAGE_SIZE, LayerCache
from ...extensions import attached

SCRATCH_PAGES = 1  # in addition to the pool's pages: the padding rows of decode graphs write there
_ROWS = 65536  # tokens that are generated at a time


def row_layout(config: ModelConfig, precision: Precision) -> tuple[torch.dtype, int, int]:
    """(dtype, elements of a latent row, elements of an index row) of one layer's caches."""
    latent, rope, index = config.kv_lora_rank, config.qk_rope_head_dim, config.index_head_dim
    if precision == "fp8":
        if latent % FP8_BLOCK:
            raise ArgumentError("kv_lora_rank", latent, f"a multiple of {FP8_BLOCK} for the fp8 cache")
        return torch.uint8, latent + 4 * latent // FP8_BLOCK + 2 * rope, index + 4
    return {"exact": torch.float32, "bf16": torch.bfloat16}[precision], latent + rope, index


def bytes_per_page(config: ModelConfig, precision: Precision, mtp: bool = False, observers: Sequence[str] = ()) -> int:
    """Bytes of one page over all layers: 64 × 48,068 for the released model in fp8, 64 × 48,856 with the MTP layer.

    observers: names, as in Limits; their bytes for each page count, too.
    """
    dtype, latent, index = row_layout(config, precision)
    layers = config.num_hidden_layers + mtp
    kept: int = sum(cast(Any, attached(name)).page_bytes(layers) for name in observers)
    return layers * PAGE_SIZE * (latent + index) * dtype.itemsize + kept


def allocate(
    config: ModelConfig,
    precision: Precision,
    page_count: int,
    device: torch.device | str = "cpu",
    mtp: bool = False,
) -> list[LayerCache]:
    """One LayerCache per layer, [P, 64, 1, row], uninitialised: nothing may read a slot that no token has written.

    mtp: the MTP layer's is the last one.
    """
    dtype, latent, index = row_layout(config, precision)

    def rows(width: int) -> torch.Tensor:
        # Not zeros: on a CPU, memory that is never touched is never taken.
        return torch.empty(page_count, PAGE_SIZE, 1, width, dtype=dtype, device=device)

    return [LayerCache(rows(latent), rows(index)) for _ in range(config.num_hidden_layers + mtp)]


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
