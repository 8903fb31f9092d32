"""How much memory a model needs on each of N GPUs, or on this machine's CPU, and how many tokens its caches hold then."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...model.config import ModelConfig, Precision
from ...model.metadata import PAGE_SIZE
from ...model.mtp import MTPTables
from ...model.parallel.shard import parameter_bytes
from ..engine.running.cache import bytes_per_page
from ..engine.sizing import available_memory
from .terminal import size_text, wrapped

GPU_GIB = 139.0  # of an H200, as torch counts it: for a machine that has no GPU
GPU_FRACTION = 0.9  # of its memory, as memory_fraction by default
CPU_FRACTION = 0.25  # of the memory that is free, for the caches
GIB = 2**30


@dataclass(frozen=True)
class MemoryRow:
    """One way to run a model. Sizes are bytes, of one GPU where there are several."""

    place: str
    precision: Precision
    memory: int
    weights: int
    bytes_per_token: int  # of all layers' caches, which every GPU holds whole
    tokens: int  # that fit into the caches; 0: the weights do not fit

    @property
    def fits(self) -> bool:
        """Whether it can run at all."""
        return self.tokens >= PAGE_SIZE


def gpu_row(
    config: ModelConfig, ranks: int, precision: Precision | None, mtp: MTPTables | None, memory: int | None = None
) -> MemoryRow:
    """For `ranks` GPUs of `memory` bytes each: by default as this machine's, or an H200's."""
    name = ""
    if memory is None:
        memory = int(GPU_GIB * GIB)
        if torch.cuda.is_available():
            memory, name = torch.cuda.mem_get_info(0)[1], f" ({torch.cuda.get_device_name(0)})"
    chosen: Precision = precision or ("fp8" if config.weight_block is not None else "bf16")
    weights = max(parameter_bytes(config, chosen, rank, ranks, mtp) for rank in range(ranks))
    place = f"{ranks} GPU{'s' if ranks > 1 else ''} of {memory / GIB:.0f} GiB{name}"
    return _row(place, config, chosen, mtp, memory, weights, int(GPU_FRACTION * memory) - weights)


def cpu_row(config: ModelConfig, precision: Precision | None, mtp: MTPTables | None) -> MemoryRow:
    """For this machine's CPU, with the memory that is free now."""
    chosen, memory = precision or "exact", available_memory()
    weights = parameter_bytes(config, chosen, mtp=mtp)
    return _row("this CPU", config, chosen, mtp, memory, weights, int(CPU_FRACTION * (memory - weights)))


def _row(
    place: str,
    config: ModelConfig,
    precision: Precision,
    mtp: MTPTables | None,
    memory: int,
    weights: int,
    budget: int,
) -> MemoryRow:
    page = bytes_per_page(config, precision, mtp=mtp is not None)
    tokens = max(budget, 0) // page * PAGE_SIZE
    return MemoryRow(place, precision, memory, weights, page // PAGE_SIZE, tokens)


def as_lines(rows: list[MemoryRow], config: ModelConfig) -> list[str]:
    """The rows as a table, and what it leaves out."""
    width = max(len(row.place) for row in rows)
    lines = [f"{'Memory':{width + 2}}  {'in':6}{'weights':>11}{'cache/token':>12}{'tokens fit':>14}{'contexts':>10}"]
    for row in rows:
        contexts = f"{row.tokens / config.max_position_embeddings:,.1f}" if row.fits else ""
        tokens = f"{row.tokens:,}" if row.fits else "none"
        cells = f"{size_text(row.weights):>11}{f'{row.bytes_per_token / 1024:.1f} KiB':>12}{tokens:>14}{contexts:>10}"
        lines.append(f"  {row.place:{width}}  {row.precision:6}{cells}")
    return [
        *lines,
        *wrapped("The working space of a step, which loading measures on a GPU, takes some of these tokens.", 2),
    ]


def as_json(rows: list[MemoryRow]) -> list[dict[str, Any]]:
    """The rows, as JSON values."""
    return [asdict(row) | {"fits": row.fits} for row in rows]
