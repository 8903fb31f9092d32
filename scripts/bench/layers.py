"""Time the model's steps on a GPU, with synthetic weights of the released dimensions: a table, then one line of JSON.

    python scripts/bench/layers.py                              # as many layers as a card of 80 GB holds
    python scripts/bench/layers.py --layers 3 --batches 1 64 --contexts 4096

Decode steps run as the engine runs them: as CUDA graphs over block tables. Prefill steps are chunks of a long prompt. The first
layer has a dense MLP and the others are MoE layers; all numbers are of one MoE layer: (time of all layers - time of the
first) / (layers - 1). `kernels` is the sum of the kernels' own times, by the profiler. `roofline` is the time that weights and
caches take at the card's bandwidth, or that the FLOPs take at its rates of bf16 and FP8 products; all three are measured first.
Sequences share pages at random, so that the caches of 128 long contexts fit; what a step reads still exceeds the L2 cache.
--timeline shows where the time of a layer goes: for each kernel in order, how much later than the one before it it ends.
--verify 2 3 4 measures speculative decoding instead: a layer in steps that verify drafts, with 2, 3 or 4 tokens a sequence; the MTP
layer with the head; and from these the tokens a second of the whole model, with the acceptance that others have published.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from deepseek_v32.inference.engine.running.cache import allocate
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.kernels.availability import describe
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.mtp import MTPTables
from deepseek_v32.model.parallel.plan import Plan
from deepseek_v32.model.parallel.shard import build_model
from deepseek_v32.model.synthetic.caches import fill_synthetic_caches
from deepseek_v32.model.synthetic.weights import fill_synthetic
from deepseek_v32.model.transformer import Transformer

sys.path.insert(0, str(Path(__file__).parents[1]))  # PYTHONSAFEPATH leaves it out

from bench.engine_parts.machine import describe_machine
from bench.engine_parts.probes import Rates, measure_rates
from bench.engine_parts.speculation import measure_speculation
from bench.engine_parts.steps import CHUNK, PAGES, Step, make_request


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
    parser.add_argument(
        "--verify", type=int, nargs="*", default=[], metavar="N", help="measure steps of N tokens a sequence: 2 to 5"
    )
    parser.add_argument("--deterministic", action="store_true", help="with batch-invariant kernels")
    parser.add_argument("--timeline", action="store_true", help="also list the kernels of a layer in order")
    arguments = parser.parse_args()
    if arguments.layers < 2:
        parser.error(f"--layers is {arguments.layers}; expected at least 2: the difference between them is measured")
    return arguments


def main() -> None:
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA GPU found; bench/engine.py times steps on one")
    device = torch.device("cuda", torch.cuda.current_device())
    config = replace(ModelConfig(), num_hidden_layers=arguments.layers, first_k_dense_replace=1)
    machine = describe_machine(device) | {"layers": arguments.layers, "deterministic": arguments.deterministic}
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print("; ".join(f"{line.operation}: {line.chosen}" for line in describe(device)))
    rates = measure_rates(device)
    machine |= rates.describe()
    print(", ".join(f"{key} {value}" for key, value in rates.describe().items()))
    began = time.perf_counter()
    mtp = MTPTables() if arguments.verify else None
    model = build_model(config, "fp8", "auto", device, mtp=mtp, deterministic=arguments.deterministic)
    fill_synthetic(model, Plan(config, mtp=mtp))
    caches = allocate(config, "fp8", PAGES + 1, device, mtp=mtp is not None)
    fill_synthetic_caches(config, caches)
    torch.cuda.synchronize()
    gib = torch.cuda.memory_allocated() / 2**30
    print(f"weights and caches made in {time.perf_counter() - began:.0f} s, {gib:.1f} GiB")
    if arguments.verify:
        found = measure_speculation(model, caches, arguments.verify, arguments.batches, arguments.contexts)
        print(json.dumps({**machine, "speculation": found}))
        return
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
