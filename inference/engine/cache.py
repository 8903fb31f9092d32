"""The tensors behind the pages: shapes and byte layouts.

FP8, per token and layer (sizes of the released model):
    latent  656 B: 512 e4m3 latent | 4 fp32 scales, one per 128 | 64 bf16 rotated rope
    index   132 B, laid out per page: 64 × 128 B of e4m3 keys, then 64 fp32 scales
bf16 and exact keep plain rows: latent and rope side by side, and the index key.
"""

import torch

from ...model.config import FP8_BLOCK, ModelConfig, Precision
from ...model.metadata import PAGE_SIZE, LayerCache

SCRATCH_PAGES = 1  # beyond those that are handed out: where the padding of decode graphs is written


def row_layout(config: ModelConfig, precision: Precision) -> tuple[torch.dtype, int, int]:
    """(dtype, elements of a latent row, elements of an index row) of the caches of one layer."""
    latent, rope, index = config.kv_lora_rank, config.qk_rope_head_dim, config.index_head_dim
    if precision == "fp8":
        if latent % FP8_BLOCK:
            raise ValueError(f"kv_lora_rank is {latent}; the fp8 cache wants a multiple of {FP8_BLOCK}")
        return torch.uint8, latent + 4 * latent // FP8_BLOCK + 2 * rope, index + 4
    return {"exact": torch.float32, "bf16": torch.bfloat16}[precision], latent + rope, index


def bytes_per_page(config: ModelConfig, precision: Precision) -> int:
    """Bytes that one page takes over all layers: 64 × 48,068 for the released model in fp8."""
    dtype, latent, index = row_layout(config, precision)
    return config.num_hidden_layers * PAGE_SIZE * (latent + index) * dtype.itemsize


def allocate(
    config: ModelConfig, precision: Precision, page_count: int, device: torch.device | str = "cpu"
) -> list[LayerCache]:
    """One LayerCache per layer, [page_count, 64, 1, row], uninitialised: nothing may read what no token has written."""
    dtype, latent, index = row_layout(config, precision)

    def rows(width: int) -> torch.Tensor:
        return torch.empty(
            page_count, PAGE_SIZE, 1, width, dtype=dtype, device=device
        )  # untouched memory costs nothing

    return [LayerCache(rows(latent), rows(index)) for _ in range(config.num_hidden_layers)]
