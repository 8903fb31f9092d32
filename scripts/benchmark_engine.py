"""Time the model's steps on a GPU, with synthetic weights of the released dimensions: a table, then one line of JSON.

    python scripts/benchmark_engine.py                              # as many layers as a card of 80 GB holds
    python scripts/benchmark_engine.py --layers 3 --batches 1 64 --contexts 4096

Decode steps run as the engine runs them: as CUDA graphs over block tables. Prefill steps are chunks of a long prompt. The first
layer has a dense MLP and the others are MoE layers; all numbers are those of one MoE layer: (time of all layers - time of the
first) / (layers - 1). `kernels` is the sum of the kernels' own times, by the profiler. `roofline` is the time that weights and
caches take at the card's bandwidth, or that the FLOPs take at its rates of bf16 and FP8 products; all three are measured first.
Sequences share pages at random, so that the caches of 128 long contexts fit; what a step reads still exceeds the L2 cache.
--timeline shows where the time of a layer goes: for each kernel in order, how much later than the one before it it ends.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference.engine.cache import allocate
from deepseek_v32.inference.engine.decode_graph import DecodeGraphs
from deepseek_v32.inference.engine.runner import Runner
from deepseek_v32.inference.engine.scheduler import Batch
from deepseek_v32.inference.engine.synthetic_cache import fill_synthetic_caches
from deepseek_v32.inference.params import Request, SamplingParams
from deepseek_v32.kernels.registry import describe
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import PAGE_SIZE, LayerCache
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

from engine_benchmarks.machine import describe_machine  # type: ignore[import-not-found]
from engine_benchmarks.probes import Rates, measure_rates  # type: ignore[import-not-found]
from engine_benchmarks.profiling import KernelTime, kernel_times, launches, timeline  # type: ignore[import-not-found]

PAGES = 16384  # 1M tokens: their index keys alone are 138 MB a layer, more than L2 holds
CHUNK = 4096  # tokens of a prefill step
PROFILED = 3  # steps under the profiler


def make_request(id: int, start: int, count: int, generator: torch.Generator) -> Request:
    """A request whose next step processes `count` tokens from position `start`."""
    tokens = tuple(torch.randint(3, 100_000, (start + count,), generator=generator).tolist())
    request = Request(id, tokens, SamplingParams(), max_tokens=1, seed=0)
    request.pages = torch.randint(0, PAGES, (-(-(start + count) // PAGE_SIZE),), generator=generator).tolist()
    # The pages that this step writes belong to this request alone, so that all slots differ.
    for page in range(start // PAGE_SIZE, len(request.pages)):
        request.pages[page] = (id * (CHUNK // PAGE_SIZE + 1) + page - start // PAGE_SIZE) % PAGES
    request.computed = start
    return request


def microseconds(run: Callable[[], object], repeats: int = 20) -> float:
    """Median time of one step on the GPU, by CUDA events."""
    times = []
    for _ in range(3):
        run()
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def layer_bytes(model: Transformer, batch: int) -> float:
    """Bytes of an MoE layer's weights that a step of `batch` tokens reads if all experts are equally likely."""
    config = model.config
    total = 0.0
    for name, weight in model.layers[-1].named_parameters():
        fraction = 1.0
        if ".experts." in f".{name}":
            fraction = 1 - (1 - config.num_experts_per_tok / config.n_routed_experts) ** batch
        total += fraction * weight.numel() * weight.element_size()
    return total


def decode_roofline(model: Transformer, batch: int, context: int, rates: Rates) -> float:
    """Microseconds that reading one layer's weights and caches takes."""
    selected = min(context, model.config.index_topk)
    caches = batch * (selected * 656 + (context * 132 if context > selected else 0))
    return (layer_bytes(model, batch) + caches) / rates.bandwidth * 1e6


def prefill_roofline(model: Transformer, context: int, rates: Rates) -> float:
    """Microseconds that one layer's FLOPs for the last CHUNK tokens of a context take."""
    config = model.config
    heads, latent = config.num_attention_heads, config.kv_lora_rank
    selected = sum(min(position + 1, config.index_topk) for position in range(context - CHUNK, context))
    attention = 2 * heads * selected * (2 * latent + config.qk_rope_head_dim)
    absorb = 2 * heads * latent * (config.qk_nope_head_dim + config.v_head_dim)
    scores = 2 * config.index_n_heads * config.index_head_dim * (context - CHUNK / 2)
    per_layer = model.layers[-1]
    weights = sum(w.numel() for n, w in per_layer.named_parameters() if w.element_size() == 1 and ".experts." not in n)
    active = config.num_experts_per_tok * 3 * config.hidden_size * config.moe_intermediate_size
    fp8 = 2 * (weights + active) + scores
    return ((attention + CHUNK * absorb) / rates.bf16 + CHUNK * fp8 / rates.fp8) * 1e6


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

        if self.batch.counts[0] == 1:
            count = len(self.batch.requests)
            device = model.compute.device
            graphs = DecodeGraphs(forward, caches, PAGES, count, self.longest, model.config.index_topk, device)
            return lambda: graphs.run(self.batch)
        runner = Runner(model, caches, model.compute.device)
        tokens, positions, metadata = runner.prepare(self.batch)
        return lambda: forward(tokens, positions, metadata, caches)

    @torch.inference_mode()
    def measure(self, with_timeline: bool) -> tuple[float, dict[str, KernelTime], list[tuple[str, float, float]]]:
        """(microseconds, kernels, timeline) of one MoE layer. The timeline is empty unless asked for."""
        moe_layers = len(self.model.layers) - 1
        whole, first = self.runner(moe_layers + 1), self.runner(1)
        microseconds_per_layer = (microseconds(whole) - microseconds(first)) / moe_layers
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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--layers", type=int, default=4, help="one with a dense MLP, the others MoE (default: %(default)s)"
    )
    parser.add_argument(
        "--batches",
        type=int,
        nargs="*",
        default=[1, 16, 64, 128],
        help="sequences per decode step (default: 1 16 64 128)",
    )
    parser.add_argument(
        "--contexts",
        type=int,
        nargs="*",
        default=[4096, 32768, 131072],
        help="context lengths of decode steps (default: 4096 32768 131072)",
    )
    parser.add_argument(
        "--prefill",
        type=int,
        nargs="*",
        default=[4096, 32768, 131072],
        help="context lengths at which a chunk of 4096 tokens ends (default: 4096 32768 131072)",
    )
    parser.add_argument(
        "--kernels", type=int, default=0, metavar="N", help="also list the N longest kernels of each case"
    )
    parser.add_argument("--timeline", action="store_true", help="also list the kernels of a layer in order")
    arguments = parser.parse_args()
    if arguments.layers < 2:
        parser.error(f"--layers is {arguments.layers}; expected at least 2: the difference between them is measured")
    return arguments


def main() -> None:
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA GPU found; benchmark_engine times steps on one")
    device = torch.device("cuda", torch.cuda.current_device())
    config = replace(ModelConfig(), num_hidden_layers=arguments.layers, first_k_dense_replace=1)
    machine = describe_machine(device) | {"layers": arguments.layers}
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print("; ".join(f"{line.operation}: {line.chosen}" for line in describe(device)))
    rates = measure_rates(device)
    machine |= rates.describe()
    print(", ".join(f"{key} {value}" for key, value in rates.describe().items()))
    began = time.perf_counter()
    model = build_model(config, "fp8", "auto", device)
    fill_synthetic(model, Plan(config))
    caches = allocate(config, "fp8", PAGES + 1, device)
    fill_synthetic_caches(config, caches)
    torch.cuda.synchronize()
    gib = torch.cuda.memory_allocated() / 2**30
    print(f"weights and caches made in {time.perf_counter() - began:.0f} s, {gib:.1f} GiB")
    heading = "microseconds of one MoE layer"
    print(f"{heading:34} {'time':>9} {'kernels':>9} {'ratio':>6} {'roofline':>9} {'launches':>8}")
    generator = torch.Generator().manual_seed(0)
    cases = [("decode", size, context) for context in arguments.contexts for size in arguments.batches]
    cases += [("prefill", 1, context) for context in arguments.prefill]
    results = []
    for kind, size, context in cases:
        count = 1 if kind == "decode" else CHUNK
        batch = Batch.of([(make_request(i, context - count, count, generator), count) for i in range(size)])
        took, kernels, steps = Step(model, caches, batch, context).measure(arguments.timeline)
        kernels_took = sum(kernel.microseconds for kernel in kernels.values())
        launched = sum(kernel.launches for kernel in kernels.values())
        roofline = (
            decode_roofline(model, size, context, rates)
            if kind == "decode"
            else prefill_roofline(model, context, rates)
        )
        name = f"decode B={size}, context {context}" if kind == "decode" else f"prefill of {CHUNK} at {context}"
        ratio = took / kernels_took
        print(f"{name:34} {took:9.1f} {kernels_took:9.1f} {ratio:6.2f} {roofline:9.1f} {launched:8.0f}", flush=True)
        longest = sorted(kernels.items(), key=lambda item: -item[1].microseconds)
        for kernel, (each, number) in longest[: arguments.kernels]:
            print(f"    {each:9.1f} us {number:4.0f} x {kernel[:110]}")
        for kernel, later, own in steps:
            print(f"    +{later:8.2f} us, runs {own:8.2f}  {kernel[:100]}")
        rounded = {"us": took, "kernels_us": kernels_took, "roofline_us": roofline}
        results.append({"case": name} | {key: round(value, 1) for key, value in rounded.items()})
        torch.cuda.empty_cache()
    print(json.dumps({**machine, "results": results}))


if __name__ == "__main__":
    main()
