"""The tensors behind the pages: shapes, byte layouts and how many pages the memory holds.

FP8, per token and layer (sizes of the released model):
    latent  656 B: 512 e4m3 latent | 4 fp32 scales, one per 128 | 64 bf16 rotated rope
    index   132 B, laid out per page: 64 × 128 B of e4m3 keys, then 64 fp32 scales
bf16 and exact keep plain rows: latent and rope side by side, and the index key.
"""

import os
from pathlib import Path

import torch

from ..model.config import FP8_BLOCK, ModelConfig, Precision
from ..model.metadata import PAGE_SIZE, LayerCache

_CPU_SEQUENCES = 8  # full contexts that the default on a CPU makes room for, memory permitting


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


def pages_in_memory(
    config: ModelConfig, precision: Precision, device: torch.device | str, max_model_len: int, memory_fraction: float
) -> int:
    """How many pages to allocate by default.

    On a GPU: what `memory_fraction` of its memory leaves after what is taken already (the weights). On a CPU: that fraction
    of the memory now available, but no more than a few full contexts. ValueError if not even one page fits.
    """
    if not 0 < memory_fraction <= 1:
        raise ValueError(f"memory_fraction is {memory_fraction}; it must be above 0 and at most 1")
    page = bytes_per_page(config, precision)
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        budget = free - int((1 - memory_fraction) * total)
        pages = budget // page
    else:
        budget = int(memory_fraction * _available_memory())
        pages = min(budget // page, _CPU_SEQUENCES * -(-max_model_len // PAGE_SIZE))
    if pages < 1:
        raise ValueError(
            f"no memory for the caches: a page of {PAGE_SIZE} tokens takes {page / 2**20:.1f} MiB, "
            f"memory_fraction {memory_fraction} leaves {max(budget, 0) / 2**20:.1f} MiB"
        )
    return pages


def _available_memory() -> int:
    """Bytes that this process can still take, its control group's limit included."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration):  # not Linux
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            # Files read lately, such as the checkpoint, count as used but give way.
            used = int((group / "memory.current").read_text()) - int(statistics.get("inactive_file", 0))
            limits.append(int(limit) - used)
    except OSError:  # no control group of version 2
        pass
    return max(min(limits), 0)
