"""Checks that a model fits in memory, counts the cache pages that fit next to it, and resolves the engine's limits."""

import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...kernels.errors import ArgumentError
from ...model.config import ModelConfig, Precision
from ...model.expert_slots import ExpertSlots
from ...model.metadata import PAGE_SIZE
from ...model.mtp import MTPTables
from ...model.parallel.shard import parameter_bytes
from ...model.transformer import Transformer
from ..config import CacheBudget, EngineConfig, Limits, most_rows
from ..offload_speed import estimate_offload
from .running.cache import bytes_per_page
from .running.decode_graph import batch_buckets, context_buckets
from .running.selection import most_bytes
from .warm_up import measure_largest_step

_OFFLOADED_SEQUENCES = 4  # full contexts that the default number of pages holds at most, next to offloaded experts
_CPU_SEQUENCES = 8  # full contexts that the default number of pages on a CPU holds, memory permitting
_GPU_FRACTION = 0.9  # of a GPU's memory that is used by default
_MOST_SEQUENCES = 1 << 16
_GIB = 2**30


def resolve_limits(
    config: ModelConfig,
    precision: Precision,
    device: torch.device | str,
    chosen: EngineConfig,
    speculative_tokens: int = 0,
    count_pages: Callable[[CacheBudget], int] | None = None,
    data_ranks: int = 1,
) -> Limits:
    """The engine's limits: those that are chosen, and defaults for the others. ArgumentError for one that is not allowed.

    The defaults: max_model_len: what the model's positions and the pages allow. max_batch_tokens: 2048 on a CPU, 16384 on a GPU.
    max_sequences: 64 on a CPU, 256 on a GPU. page_count: what fits in memory_fraction, which is 0.25 of a CPU's available memory
    or 0.9 of a GPU's memory less the weights. speculative_tokens: as in Limits. count_pages: computes the number of pages from
    the budget, and warms a GPU's kernels up. data_ranks: as in Limits.
    """
    max_model_len, max_batch_tokens, max_sequences = chosen.max_model_len, chosen.max_batch_tokens, chosen.max_sequences
    page_count, memory_fraction = chosen.page_count, chosen.memory_fraction
    on_cpu = torch.device(device).type == "cpu"
    positions = config.max_position_embeddings
    for name in ("max_model_len", "max_batch_tokens", "max_sequences", "page_count", "expert_slots"):
        if (value := getattr(chosen, name)) is not None and value < 1:
            raise ArgumentError(name, value, "at least 1")
    if max_sequences is not None and max_sequences > _MOST_SEQUENCES:
        raise ArgumentError("max_sequences", max_sequences, f"at most {_MOST_SEQUENCES}")
    if page_count is not None:
        page = bytes_per_page(config, precision, speculative_tokens != 0, chosen.observers)
        memory = available_memory() if on_cpu else torch.cuda.mem_get_info(device)[1]
        if page_count * page > memory:
            expected = f"at most {memory // page}, which fit in {memory / _GIB:.1f} GiB"
            raise ArgumentError("page_count", page_count, expected)
    if max_model_len is not None and not 2 <= max_model_len <= positions:
        raise ArgumentError("max_model_len", max_model_len, f"2 to {positions} tokens, as the model allows")
    max_batch_tokens = max_batch_tokens or (2048 if on_cpu else 16384)
    max_sequences = max_sequences or (64 if on_cpu else 256)
    fraction = memory_fraction if memory_fraction is not None else 0.25 if on_cpu else _GPU_FRACTION
    sizes = (max_batch_tokens, max_sequences, max_model_len or positions)
    if not 0 < fraction <= 1:
        raise ArgumentError("memory_fraction", fraction, "above 0 and at most 1")
    budget = CacheBudget(*sizes, fraction, chosen.observers, page_count, chosen.expert_slots, data_ranks)
    if count_pages is not None:
        page_count = count_pages(budget)
    elif page_count is None:
        page_count = pages_in_memory(budget, config, precision, device, mtp=speculative_tokens != 0)
    capacity = page_count * PAGE_SIZE
    if max_model_len is not None and max_model_len > capacity:
        expected = f"at most {capacity}: {page_count} pages of {PAGE_SIZE} tokens"
        raise ArgumentError("max_model_len", max_model_len, expected)
    return Limits(
        max_model_len=max_model_len or min(positions, capacity),
        max_batch_tokens=max_batch_tokens,
        max_sequences=max_sequences,
        page_count=page_count,
        reuse_pages=chosen.reuse_pages,
        decode_graphs=chosen.decode_graphs,
        observers=chosen.observers,
        speculative_tokens=speculative_tokens,
        data_ranks=data_ranks,
        spare_core=chosen.spare_core,
    )


def count_pages(budget: CacheBudget, model: Transformer, ranks: int = 1) -> int:
    """Return the number of pages that fit next to the weights and the largest step, unless the budget fixes it."""
    config, precision, device = model.config, model.compute.precision, model.compute.device
    mtp, slots = model.mtp is not None, model.expert_slots
    if slots is not None:
        slots.allocate(1)
    # Slots take what the largest step leaves, so it is measured whole even if the pages are given.
    whole = budget if slots is None or budget.expert_slots else replace(budget, page_count=None)
    with nullcontext() if slots is None else slots.measuring():
        step_bytes = measure_largest_step(model, whole, ranks)
    if device.type == "cuda" and budget.page_count is None:
        step_bytes += record_bytes(config, budget, mtp)
    pages = budget.page_count
    if pages is None:
        pages = pages_in_memory(budget, config, precision, device, step_bytes, ranks, mtp)
        if slots is not None:  # they get most of the memory
            contexts = _OFFLOADED_SEQUENCES * -(-budget.max_model_len // PAGE_SIZE)
            pages = max(1, min(pages // 4, contexts))
    if slots is not None:
        page_bytes = pages * bytes_per_page(config, precision, mtp, budget.observers)
        fitting = (slots, budget.memory_fraction, step_bytes + page_bytes, ranks)
        slots.allocate(min(budget.expert_slots or _slots_in_memory(*fitting), slots.most))
    return pages


def _slots_in_memory(slots: ExpertSlots, memory_fraction: float, others: int, ranks: int) -> int:
    """Return how many experts fit next to the weights and `others` bytes: on a CPU in half of what is available, for the files."""
    if slots.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(slots.device)
        room = free - int((1 - memory_fraction) * total) - others
    else:
        room = (available_memory() // ranks - others) // 2
    count = min(room // slots.slot_bytes, slots.most)
    if count < 1:
        needed = f"{slots.slot_bytes / 2**20:.1f} MiB for one expert next to {others / 2**20:.1f} MiB of a step and the caches"
        raise ArgumentError(
            "memory", f"{max(room, 0) / 2**20:.1f} MiB", f"at least {needed}: fewer batch tokens or pages"
        )
    return count


def record_bytes(config: ModelConfig, budget: CacheBudget, mtp: bool) -> int:
    """Return the most bytes of a GPU that recorded selections of decodes can take."""
    rows = most_rows(budget.max_sequences, budget.max_batch_tokens, mtp)
    buckets = len(batch_buckets(rows)) * len(context_buckets(config.index_topk, budget.max_model_len))
    return most_bytes(rows, buckets, config.num_hidden_layers, config.index_topk)


def check_fits(
    config: ModelConfig,
    precision: Precision,
    device: torch.device | str,
    ranks: int = 1,
    mtp: bool = False,
    synthetic: bool = False,
    offload: bool = False,
    directory: Path | None = None,
    whole_attention: bool = False,
) -> None:
    """ValueError, with the numbers and what would help, if the weights and one page of cache need more memory than is free.

    Called before anything is loaded. `ranks` processes share the model: on CPUs all of them take from the machine's memory. mtp:
    with the MTP layer. directory: of a checkpoint, to say what leaving its experts there would need and give. whole_attention: with
    the weights of all heads on every rank.
    """
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    free, total = torch.cuda.mem_get_info(device) if on_gpu else (available_memory(), 0)

    def needed(ranks: int, precision: Precision, mtp: bool, whole: bool = whole_attention) -> tuple[int, int]:
        """Bytes of weights and of a page, on one GPU or for all ranks of a CPU."""
        held = range(1 if on_gpu else ranks)
        tables = MTPTables() if mtp else None
        weights = [parameter_bytes(config, precision, rank, ranks, tables, offload, whole) for rank in held]
        return sum(weights), bytes_per_page(config, precision, mtp=mtp) * len(held)

    weights, page = needed(ranks, precision, mtp)
    if weights + page <= free:
        return
    where = f"{free / _GIB:.1f} of {device}'s {total / _GIB:.1f} GiB are" if on_gpu else f"{free / _GIB:.1f} GiB are"
    part = f"rank 0's shard of {ranks}" if on_gpu and ranks > 1 else "the model"

    def takes(*form: Any) -> float:
        """Bytes of this form; infinite if the model cannot have it."""
        try:
            return sum(needed(*form))
        except ValueError:
            return math.inf

    more = next((n for n in (2, 4, 8) if on_gpu and n > ranks and takes(n, precision, mtp) <= free), None)
    ways = [] if more is None else [f"--tensor-parallel-size {more}"]
    ways += ["no --attention data"] if whole_attention and takes(ranks, precision, mtp, False) <= free else []
    ways += ["--speculative-tokens 0"] if mtp and takes(ranks, precision, False) <= free else []
    ways += ["--precision fp8"] if precision != "fp8" and takes(ranks, "fp8", mtp) <= free else []
    ways += ["--layers N"] if synthetic else []
    smallest = takes(8 if on_gpu else ranks, "fp8", False) / _GIB
    form = f"--precision fp8{' --tensor-parallel-size 8' * on_gpu}{' --speculative-tokens 0' * mtp}"
    advice = f": its smallest form, {form}, takes {smallest:.1f} GiB" if smallest < math.inf else ""
    advice = f": use {' or '.join(ways)}" if ways else advice
    if directory is not None and not offload:
        speed = estimate_offload(config, precision, device, ranks, mtp, directory)
        if (1 if on_gpu else ranks) * speed.residents + page <= free:
            advice += f"; with --offload experts {speed}"
    layers = f"{config.num_hidden_layers} layers{' and the MTP layer' if mtp else ''}"
    raise ValueError(
        f"{part} takes {weights / _GIB:.1f} GiB of weights in {precision} precision ({layers}) "
        f"and {page / 2**20:.1f} MiB for one page of {PAGE_SIZE} tokens; {where} free{advice}"
    )


def has_room_for_heads(
    config: ModelConfig,
    precision: Precision,
    device: str,
    ranks: int,
    mtp: bool,
    offload: bool,
    chosen: EngineConfig,
) -> bool:
    """Return whether every rank has room for all heads' weights, the chosen caches, and as much again as these weights add."""
    tables = MTPTables() if mtp else None
    split, whole = (
        parameter_bytes(config, precision, 0, ranks, tables, offload, all_heads) for all_heads in (False, True)
    )
    pages = chosen.page_count or -(-(chosen.max_model_len or 1) // PAGE_SIZE)
    if torch.device(device).type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        free -= int((1 - (chosen.memory_fraction or _GPU_FRACTION)) * total)
    else:
        free = available_memory() // ranks
    caches = pages * bytes_per_page(config, precision, mtp, chosen.observers)
    return free - whole - caches >= whole - split


def pages_in_memory(
    budget: CacheBudget,
    config: ModelConfig,
    precision: Precision,
    device: torch.device | str,
    step_bytes: int = 0,
    ranks: int = 1,
    mtp: bool = False,
) -> int:
    """Return the default number of pages. ValueError if not even one page fits.

    On a GPU: `memory_fraction` of its memory, less what is allocated (the weights) and the `step_bytes` of a step. On a CPU: that
    fraction of the memory now available, divided among the job's `ranks`, but no more than a few full contexts.
    """
    page, fraction = bytes_per_page(config, precision, mtp, budget.observers), budget.memory_fraction
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        room = free - int((1 - fraction) * total) - step_bytes
        pages = room // page
    else:
        room = int(fraction * available_memory()) // ranks
        pages = min(room // page, _CPU_SEQUENCES * -(-budget.max_model_len // PAGE_SIZE))
    if pages < 1:
        step = f" next to the {step_bytes / 2**20:.1f} MiB of a step" if step_bytes else ""
        raise ArgumentError(
            "memory_fraction",
            f"{fraction}, which leaves {max(room, 0) / 2**20:.1f} MiB for the caches{step}",
            f"at least {page / 2**20:.1f} MiB, one page of {PAGE_SIZE} tokens",
        )
    return pages


def available_memory() -> int:
    """Bytes of the machine's memory that this process can still allocate, within the limit of its control group."""
    bounds = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    except (OSError, StopIteration):  # not Linux
        bounds.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            # Files in the page cache, such as the checkpoint, count as used, but the kernel drops them when memory is needed.
            files = sum(int(statistics.get(name, 0)) for name in ("inactive_file", "active_file"))
            used = int((group / "memory.current").read_text()) - files
            bounds.append(int(limit) - used)
    except OSError:  # no control group of version 2
        pass
    return max(min(bounds), 0)
