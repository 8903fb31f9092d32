"""Time the whole model's steps on a GPU, with synthetic weights of the released dimensions: a table, then one line of JSON.

    python scripts/benchmark_engine.py                              # as many layers as a card of 80 GB holds
    python scripts/benchmark_engine.py --layers 3 --batches 1 64 --contexts 4096

Decode steps run as the engine runs them, as CUDA graphs over block tables; prefill steps are chunks of a long prompt. Layers:
one with a dense MLP, then MoE ones, and the numbers are of one MoE layer: (time of all - time of the first) / (layers - 1).
`kernels` is the sum of the kernels' own times, from the profiler; `roofline` the time that weights and caches need at 3.02 TB/s,
or the FLOPs at 800 TFLOPS. Sequences share pages at random, so that the caches of 128 long contexts fit; what is read exceeds L2.
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

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

BANDWIDTH, FLOPS = 3.02e12, 800e12
PAGES = 16384  # 1M tokens: their index keys alone are 138 MB a layer, more than L2 holds
CHUNK = 4096


def request(id: int, start: int, count: int, generator: torch.Generator) -> Request:
    """One whose next step is `count` tokens at position `start`."""
    tokens = tuple(torch.randint(3, 100_000, (start + count,), generator=generator).tolist())
    made = Request(id, tokens, SamplingParams(), max_tokens=1, seed=0)
    made.pages = torch.randint(0, PAGES, (-(-(start + count) // PAGE_SIZE),), generator=generator).tolist()
    # The pages that this step writes are the request's own: slots are all different.
    for page in range(start // PAGE_SIZE, len(made.pages)):
        made.pages[page] = (id * (CHUNK // PAGE_SIZE + 1) + page - start // PAGE_SIZE) % PAGES
    made.computed = start
    return made


def microseconds(run: Callable[[], object], repeats: int = 20) -> float:
    """Median of one step on the GPU, by events."""
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


def kernel_times(run: Callable[[], object]) -> dict[str, tuple[float, int]]:
    """Kernel -> (microseconds in one step, launches)."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    found = {}
    for event in profiler.key_averages():
        found[event.key] = (event.self_device_time_total / 3, event.count // 3)
    return found


def layer_bytes(model: Transformer, batch: int) -> float:
    """Weights of an MoE layer that a step of `batch` tokens reads, every expert drawn evenly."""
    config = model.config
    total = 0.0
    for name, weight in model.layers[-1].named_parameters():
        share = 1.0
        if ".experts." in f".{name}":
            share = 1 - (1 - config.num_experts_per_tok / config.n_routed_experts) ** batch
        total += share * weight.numel() * weight.element_size()
    return total


def decode_roofline(model: Transformer, batch: int, context: int) -> float:
    """Microseconds that one layer's weights and caches need."""
    selected = min(context, model.config.index_topk)
    caches = batch * (selected * 656 + (context * 132 if context > selected else 0))
    return (layer_bytes(model, batch) + caches) / BANDWIDTH * 1e6


def prefill_roofline(model: Transformer, context: int) -> float:
    """Microseconds that one layer's FLOPs need for a chunk; those in FP8 count half."""
    config = model.config
    heads, latent = config.num_attention_heads, config.kv_lora_rank
    attention = 2 * heads * min(context, config.index_topk) * (2 * latent + config.qk_rope_head_dim)
    absorb = 2 * heads * latent * (config.qk_nope_head_dim + config.v_head_dim)
    scores = 2 * config.index_n_heads * config.index_head_dim * (context - CHUNK / 2)
    per_layer = model.layers[-1]
    weights = sum(w.numel() for n, w in per_layer.named_parameters() if w.element_size() == 1 and ".experts." not in n)
    active = config.num_experts_per_tok * 3 * config.hidden_size * config.moe_intermediate_size
    fp8 = 2 * (weights + active) + scores
    return CHUNK * (attention + absorb + fp8 / 2) / FLOPS * 1e6


class Step:
    """One batch, through the model's first layers."""

    def __init__(self, model: Transformer, caches: list[LayerCache], batch: Batch, longest: int) -> None:
        self.model, self.batch, self.longest = model, batch, longest
        self.caches = caches

    def runner(self, layers: int) -> Callable[[], object]:
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
    def measure(self) -> tuple[float, float, dict[str, tuple[float, int]]]:
        """(microseconds, microseconds of kernels, kernels) of one MoE layer."""
        many = len(self.model.layers)
        whole, first = self.runner(many), self.runner(1)
        total = (microseconds(whole) - microseconds(first)) / (many - 1)
        one, kernels = kernel_times(first), {}
        for name, (time_all, count) in kernel_times(whole).items():
            time_one, count_one = one.get(name, (0.0, 0))
            kernels[name] = ((time_all - time_one) / (many - 1), (count - count_one) // (many - 1))
        return total, sum(each for each, _ in kernels.values()), kernels


def batch_of(requests: Sequence[Request], count: int) -> Batch:
    return Batch.of([(each, count) for each in requests])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="one with a dense MLP, the others MoE")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16, 64, 128])
    parser.add_argument("--contexts", type=int, nargs="*", default=[4096, 32768, 131072])
    parser.add_argument(
        "--prefill", type=int, nargs="*", default=[4096, 32768, 131072], help="contexts of a chunk of 4096"
    )
    parser.add_argument(
        "--kernels", type=int, default=0, metavar="N", help="also list the N longest kernels of each case"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA GPU here: the engine's steps are timed on one")
    if arguments.layers < 2:
        raise SystemExit(f"--layers is {arguments.layers}; at least 2 are wanted: their difference is measured")
    device = torch.device("cuda", torch.cuda.current_device())
    config = replace(ModelConfig(), num_hidden_layers=arguments.layers, first_k_dense_replace=1)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    machine = {
        "device": torch.cuda.get_device_name(),
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": time.strftime("%Y-%m-%d"),
        "layers": arguments.layers,
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print("; ".join(f"{line.operation}: {line.chosen}" for line in describe(device)))
    started = time.perf_counter()
    model = build_model(config, "fp8", "auto", device)
    fill_synthetic(model, Plan(config))
    caches = allocate(config, "fp8", PAGES + 1, device)
    fill_synthetic_caches(config, caches)
    torch.cuda.synchronize()
    print(
        f"weights and caches made in {time.perf_counter() - started:.0f} s, {torch.cuda.memory_allocated() / 2**30:.1f} GiB"
    )
    print(
        f"{'microseconds of one MoE layer':34} {'time':>9} {'kernels':>9} {'ratio':>6} {'roofline':>9} {'launches':>8}"
    )
    generator = torch.Generator().manual_seed(0)
    cases = [("decode", size, context) for context in arguments.contexts for size in arguments.batches]
    cases += [("prefill", 1, context) for context in arguments.prefill]
    results = []
    for kind, size, context in cases:
        count = 1 if kind == "decode" else CHUNK
        batch = batch_of([request(i, context - count, count, generator) for i in range(size)], count)
        took, kernels_took, kernels = Step(model, caches, batch, context).measure()
        least = decode_roofline(model, size, context) if kind == "decode" else prefill_roofline(model, context)
        launches = sum(count for _, count in kernels.values())
        name = f"decode B={size}, context {context}" if kind == "decode" else f"prefill of {CHUNK} at {context}"
        print(
            f"{name:34} {took:9.1f} {kernels_took:9.1f} {took / kernels_took:6.2f} {least:9.1f} {launches:8}",
            flush=True,
        )
        for kernel in sorted(kernels, key=lambda each: -kernels[each][0])[: arguments.kernels]:
            print(f"    {kernels[kernel][0]:9.1f} us {kernels[kernel][1]:4} x {kernel[:110]}")
        results.append(
            {"case": name, "us": round(took, 1), "kernels_us": round(kernels_took, 1), "roofline_us": round(least, 1)}
        )
        torch.cuda.empty_cache()
    print(json.dumps({**machine, "results": results}))


if __name__ == "__main__":
    main()
