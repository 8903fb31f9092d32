"""Steps of a model with synthetic weights, timed on a GPU layer by layer."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running.decode_graph import DecodeGraphs
from deepseek_v32.inference.engine.running.eager_step import prepare
from deepseek_v32.inference.engine.running.runner import Runner
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.model.metadata import PAGE_SIZE, LayerCache
from deepseek_v32.model.transformer import Transformer

from .profiling import KernelTime, kernel_times, launches, timeline

PAGES = 16384  # 1M tokens: their index keys take 138 MB a layer, more than L2 holds
CHUNK = 4096  # tokens of a prefill step
PROFILED = 3  # steps under the profiler
WARM_UP = 0.1  # seconds


def make_request(id: int, start: int, count: int, generator: torch.Generator) -> Request:
    """A request whose next step processes `count` tokens from position `start`."""
    tokens = tuple(torch.randint(3, 100_000, (start + count,), generator=generator).tolist())
    request = Request(id, tokens, SamplingParams(), max_tokens=1, seed=0)
    request.cache.pages = torch.randint(0, PAGES, (-(-(start + count) // PAGE_SIZE),), generator=generator).tolist()
    # The pages that this step writes belong only to this request, so that all slots differ.
    for page in range(start // PAGE_SIZE, len(request.cache.pages)):
        request.cache.pages[page] = (id * (CHUNK // PAGE_SIZE + 1) + page - start // PAGE_SIZE) % PAGES
    request.cache.computed = start
    return request


def microseconds(run: Callable[[], object], repeats: int = 20) -> float:
    """Median time of one step on the GPU, by CUDA events, once its clocks have risen."""
    times = []
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP:
        run()
        torch.cuda.synchronize()
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


class Step:
    """One batch that runs through the model's first layers."""

    def __init__(self, model: Transformer, caches: list[LayerCache], batch: Batch, longest: int) -> None:
        self.model, self.batch, self.longest = model, batch, longest
        self.caches = caches

    def runner(self, layers: int) -> Callable[[], object]:
        """A function that runs the step through that many layers."""
        part = torch.nn.ModuleList(list(self.model.layers)[:layers])
        caches, model = self.caches[:layers], self.model

        def forward(*arguments: Any) -> torch.Tensor:
            whole, model.layers = model.layers, part
            try:
                return model.forward(*arguments)
            finally:
                model.layers = whole

        if self.batch.decodes == len(self.batch.requests):
            count, rows = len(self.batch.requests), self.batch.tokens
            sizes = (PAGES, count, self.longest, model.config.index_topk, model.compute.device, (), rows)
            graphs = DecodeGraphs(forward, caches, *sizes)
            graphs.staged.drafts.random_(3, 100_000)
            return lambda: graphs.run(self.batch)
        runner = Runner(model, caches, model.compute.device)
        tokens, positions, metadata, _ = prepare(self.batch, runner.drafts)
        return lambda: forward(tokens, positions, metadata, caches)

    def layer_time(self, whole: Callable[[], object], first: Callable[[], object]) -> float:
        """Microseconds of one MoE layer, from functions that run all layers and the first."""
        return (microseconds(whole) - microseconds(first)) / (len(self.model.layers) - 1)

    @torch.inference_mode()
    def measure(self, with_timeline: bool) -> tuple[float, dict[str, KernelTime], list[tuple[str, float, float]]]:
        """(microseconds, kernels, timeline) of one MoE layer. The timeline is empty unless asked for."""
        moe_layers = len(self.model.layers) - 1
        whole, first = self.runner(moe_layers + 1), self.runner(1)
        microseconds_per_layer = self.layer_time(whole, first)
        first_kernels, kernels = profiled(first), {}
        for name, (time_whole, launches_whole) in profiled(whole).items():
            time_first, launches_first = first_kernels.get(name, (0.0, 0.0))
            kernels[name] = KernelTime(
                (time_whole - time_first) / moe_layers, (launches_whole - launches_first) / moe_layers
            )
        steps = timeline(launches(whole), launches(first), moe_layers) if with_timeline else []
        return microseconds_per_layer, kernels, steps


def profiled(run: Callable[[], object]) -> dict[str, KernelTime]:
    run()
    return kernel_times(lambda: [run() for _ in range(PROFILED)], PROFILED)
