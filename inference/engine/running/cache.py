"""The cache tensors that hold the pages: shapes and byte layouts.

fp8, per token and layer (sizes of the released model):
    latent  656 B: 512 e4m3 latent dims | 4 fp32 scales, one per 128 dims | 64 bf16 rope dims, rotated
    index   132 B, stored per page: 64 × 128 B of e4m3 keys, then 64 fp32 scales
bf16 and exact use plain rows: latent and rope dims side by side, and the index key.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch

from ....model.config import FP8_BLOCK, ModelConfig, Precision
from ....model.metadata import PAGE_SIZE, LayerCache
from ...extensions import attached

SCRATCH_PAGES = 1  # in addition to the pool's pages: the padding rows of decode graphs write there


def row_layout(config: ModelConfig, precision: Precision) -> tuple[torch.dtype, int, int]:
    """(dtype, elements of a latent row, elements of an index row) of one layer's caches."""
    latent, rope, index = config.kv_lora_rank, config.qk_rope_head_dim, config.index_head_dim
    config.check_precision(precision)
    if precision == "fp8":
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
    config: ModelConfig, precision: Precision, page_count: int, device: torch.device | str = "cpu", mtp: bool = False
) -> list[LayerCache]:
    """One LayerCache per layer, [P, 64, 1, row], uninitialised: nothing may read a slot that no token has written.

    mtp: the MTP layer's is the last one.
    """
    dtype, latent, index = row_layout(config, precision)

    def rows(width: int) -> torch.Tensor:
        # Not zeros: on a CPU, memory that is never touched is never taken.
        return torch.empty(page_count, PAGE_SIZE, 1, width, dtype=dtype, device=device)

    return [LayerCache(rows(latent), rows(index)) for _ in range(config.num_hidden_layers + mtp)]
