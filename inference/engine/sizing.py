"""Whether a model fits, and how many pages of cache there is room for besides."""

import os
from pathlib import Path

import torch

from ...model.config import ModelConfig, Precision
from ...model.metadata import PAGE_SIZE
from ...model.parallel.shard import parameter_bytes
from ..params import Request, SamplingParams
from .cache import allocate, bytes_per_page
from .runner import Model, Runner
from .scheduler import Batch

_CPU_SEQUENCES = 8  # full contexts that the default on a CPU makes room for, memory permitting
_GIB = 2**30


def check_fits(config: ModelConfig, precision: Precision, device: torch.device | str, ranks: int = 1) -> None:
    """ValueError, with the numbers, if the weights and one page of cache exceed what is free. Before anything is loaded.

    `ranks` share the model: on GPUs each has its own memory, on CPUs they all take from the machine's.
    """
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    weights = [parameter_bytes(config, precision, rank, ranks) for rank in (range(1) if on_gpu else range(ranks))]
    page = bytes_per_page(config, precision) * len(weights)
    needed = sum(weights) + page
    free, total = torch.cuda.mem_get_info(device) if on_gpu else (available_memory(), 0)
    if needed <= free:
        return
    where = f"{free / _GIB:.1f} of {device}'s {total / _GIB:.1f} GiB are" if on_gpu else f"{free / _GIB:.1f} GiB are"
    share = f"rank 0's share of {ranks}" if on_gpu and ranks > 1 else "the model"
    more = "more ranks (torchrun --nproc-per-node 8), " if on_gpu and ranks < 8 else ""
    smaller = "" if precision == "fp8" else ", --precision fp8"
    raise ValueError(
        f"{share} takes {sum(weights) / _GIB:.1f} GiB of weights in {precision} precision ({config.num_hidden_layers} layers) "
        f"and {page / 2**20:.1f} MiB for one page of {PAGE_SIZE} tokens; {where} free: wanted {more}fewer layers{smaller}"
    )


def pages_in_memory(
    config: ModelConfig,
    precision: Precision,
    device: torch.device | str,
    max_model_len: int,
    memory_fraction: float,
    step_bytes: int = 0,
    ranks: int = 1,
) -> int:
    """How many pages to allocate by default.

    On a GPU: what `memory_fraction` of its memory leaves after what is taken already (the weights) and `step_bytes`, which a step
    takes besides. On a CPU: that fraction of the memory now available, shared by the job's `ranks`, but no more than a few full
    contexts. ValueError if not even one page fits.
    """
    if not 0 < memory_fraction <= 1:
        raise ValueError(f"memory_fraction is {memory_fraction}; it must be above 0 and at most 1")
    page = bytes_per_page(config, precision)
    device = torch.device(device)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        budget = free - int((1 - memory_fraction) * total) - step_bytes
        pages = budget // page
    else:
        budget = int(memory_fraction * available_memory()) // ranks
        pages = min(budget // page, _CPU_SEQUENCES * -(-max_model_len // PAGE_SIZE))
    if pages < 1:
        step = f" after the {step_bytes / 2**20:.1f} MiB of a step" if step_bytes else ""
        raise ValueError(
            f"no memory for the caches: a page of {PAGE_SIZE} tokens takes {page / 2**20:.1f} MiB, "
            f"memory_fraction {memory_fraction} leaves {max(budget, 0) / 2**20:.1f} MiB{step}"
        )
    return pages


def measure_step(
    model: Model,
    config: ModelConfig,
    precision: Precision,
    device: torch.device | str,
    max_batch_tokens: int,
    max_sequences: int,
    max_model_len: int,
) -> int:
    """Bytes that the largest step takes on a GPU beyond weights and caches, by running it; 0 on a CPU, where it is not run.

    Every rank of a job calls it at the same time.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return 0
    batch, pages = largest_step(config, max_batch_tokens, max_sequences, max_model_len)
    caches = allocate(config, precision, pages, device)
    for cache in caches:  # never written, but read: what lies there must not be NaN
        cache.latent.zero_()
        cache.index.zero_()
    runner = Runner(model, caches, device)
    runner.run(batch)  # compiles kernels, sets up libraries
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    runner.run(batch)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del runner, caches
    torch.cuda.empty_cache()
    return peak - before


def largest_step(
    config: ModelConfig, max_batch_tokens: int, max_sequences: int, max_model_len: int
) -> tuple[Batch, int]:
    """A step with as many decodes and as many prompt tokens as there may be; the number of pages it needs.

    Its contexts are long enough to be selected from. Their earlier tokens all lie in page 0, so that a few pages are enough.
    """
    decodes = min(max_sequences, max_batch_tokens) - 1
    chunk = min(max_batch_tokens - decodes, max_model_len)
    past = min(max_model_len - chunk, 2 * config.index_topk) // PAGE_SIZE * PAGE_SIZE
    own = -(-chunk // PAGE_SIZE)

    def request(id: int, start: int, count: int, pages: list[int]) -> tuple[Request, int]:
        request = Request(id, (0,) * (start + count), SamplingParams(), max_tokens=1, seed=0)
        request.computed = start
        request.pages = [0] * (start // PAGE_SIZE) + pages
        return request, count

    entries = [request(id, past, 1, [1 + own]) for id in range(decodes)]
    entries.append(request(decodes, past, chunk, list(range(1, 1 + own))))
    return Batch.of(entries), own + 2


def available_memory() -> int:
    """Bytes of the machine's memory that this process can still take, its control group's limit included."""
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
