"""Time the whole model through its engine, on one GPU or on all ranks of a job: tables, then one line of JSON.

    export PYTHONSAFEPATH=1
    torchrun --standalone --nproc-per-node 8 scripts/bench/throughput.py               # the released model, synthetic weights
    torchrun --standalone --nproc-per-node 4 scripts/bench/throughput.py --layers 40   # as many layers as fit
    torchrun --standalone --nproc-per-node 4 scripts/bench/throughput.py --layers 36 --attention data --decode 128x4096 512x4096
    python scripts/bench/throughput.py --layers 10 --decode 1x4096 --prefill 4096 --kernels 12

Decode: the engine schedules, runs (as CUDA graphs where it can) and samples greedy steps as it does for users. Only the contexts
are not computed: the caches are filled with random entries, which the engine takes for reused prefixes of the prompts. The last
timed step ends at the stated context length. Prefill: time to first token of one prompt without load, from its arrival to its
first token
on the host, with every token computed. With fewer layers than the model has, another column scales the result to all layers: an
extrapolation, not a measurement.

--kernels N also lists the N longest kernels of a step on rank 0. Their sum may exceed the step's time, and the time of collectives
includes waiting for the slowest rank; see engine_parts/profiling.py.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM
from deepseek_v32.inference.distributed.launch import this_job, world_size
from deepseek_v32.inference.distributed.leading_runner import fill_caches_on_all_ranks
from deepseek_v32.model.checkpoint.config_json import config_json, read_config
from deepseek_v32.model.config import ModelConfig

sys.path.insert(0, str(Path(__file__).parents[1]))  # PYTHONSAFEPATH leaves it out

from bench.engine_parts.bench import Bench, Decode
from bench.engine_parts.machine import describe_machine
from bench.engine_parts.profiling import print_summary

DECODES = [Decode(batch, 4096) for batch in (1, 8, 64, 128)] + [Decode(batch, 32768) for batch in (1, 8, 32)]
PREFILLS = [4096, 32768, 120_000]


def describe(llm: LLM, all_layers: int) -> dict[str, Any]:
    """The machine and what runs on it."""
    return describe_machine(llm.device) | {
        "ranks": world_size(),
        "layers": llm.config.num_hidden_layers,
        "of_layers": all_layers,
        "precision": llm.precision,
        "decode_graphs": llm.engine.runner.supports_async_scheduling,
        "attention": "data" if llm.limits.data_ranks > 1 else None,
        "pages": llm.limits.page_count * llm.limits.data_ranks,
    }


def decode_case(text: str) -> Decode:
    batch, _, context = text.partition("x")
    if not (batch.isdecimal() and context.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r}; expected BATCHxCONTEXT, such as 8x4096")
    return Decode(int(batch), int(context))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a config.json (default: the released model's configuration)")
    parser.add_argument("--layers", type=int, help="number of layers to run (default: all of the model's)")
    parser.add_argument(
        "--decode",
        type=decode_case,
        nargs="*",
        default=DECODES,
        metavar="BATCHxCONTEXT",
        help=f"default: {shown(DECODES)}",
    )
    parser.add_argument(
        "--prefill",
        type=int,
        nargs="*",
        default=PREFILLS,
        metavar="TOKENS",
        help=f"prompt lengths (default: {shown(PREFILLS)})",
    )
    parser.add_argument("--steps", type=int, default=24, help="decode steps to time (default: %(default)s)")
    parser.add_argument(
        "--kernels", type=int, default=0, metavar="N", help="profile a step and list its N longest kernels"
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is a GPU)")
    parser.add_argument("--precision", default="fp8", choices=("exact", "bf16", "fp8"), help="default: %(default)s")
    parser.add_argument("--page-count", type=int, help="pages of the cache, 64 tokens each (default: as many as fit)")
    parser.add_argument(
        "--memory-fraction", type=float, default=0.92, help="part of the GPU's memory to use (default: %(default)s)"
    )
    parser.add_argument("--attention", choices=("data",), help="data: divide sequences among the ranks")
    parser.add_argument("--max-batch-tokens", type=int, help="tokens per prefill step (default: the engine's)")
    return parser.parse_args()


def shown(cases: Iterable[object]) -> str:
    return " ".join(map(str, cases))


def main() -> None:
    arguments = parse()
    config = ModelConfig() if arguments.model is None else read_config(arguments.model)
    longest = max([case.context for case in arguments.decode] + [length + 1 for length in arguments.prefill])
    began = time.perf_counter()
    llm = LLM(  # returns only on rank 0; the other ranks work for it until it ends
        config_json(config),
        synthetic=True,
        device=arguments.device,
        precision=arguments.precision,
        config_overrides={"num_hidden_layers": arguments.layers} if arguments.layers else None,
        max_model_len=longest,
        max_sequences=max((case.batch for case in arguments.decode), default=1),
        max_batch_tokens=arguments.max_batch_tokens,
        page_count=arguments.page_count,
        memory_fraction=arguments.memory_fraction,
        attention=arguments.attention,
    )
    fill_caches_on_all_ranks(this_job(), llm.engine.runner, llm.model)
    setting = describe(llm, config.num_hidden_layers)
    print(", ".join(f"{key} {value}" for key, value in setting.items()))
    on_gpu = llm.device.type == "cuda"
    memory = f", {torch.cuda.memory_allocated(llm.device) / 2**30:.1f} GiB on rank 0" if on_gpu else ""
    print(f"weights and caches made in {time.perf_counter() - began:.0f} s{memory}", flush=True)
    bench = Bench(llm, arguments.steps, arguments.kernels)
    scale = config.num_hidden_layers / llm.config.num_hidden_layers
    note = "" if scale == 1 else f"   scaled to {config.num_hidden_layers} layers"
    decodes, prefills = [], []
    if arguments.decode:
        print(f"{'decode: batch':>13} {'context':>8} {'ms per step':>11} {'tokens/s':>9}{note}")
    for case in dict.fromkeys(bench.fitting(case) for case in arguments.decode):
        result = bench.decode(case)
        decodes.append(result)
        step_ms, rate = result["step_ms"], result["tokens_per_second"]
        scaled = "" if scale == 1 else f"{rate / scale:14.1f}"
        remark = "" if case in arguments.decode else "  (the largest batch that fits)"
        print(f"{case.batch:13} {case.context:8} {step_ms:11.3f} {rate:9.1f}{scaled}{remark}", flush=True)
        if bench.kernels:
            print_summary(result["profile"])
    if arguments.prefill:
        bench.prefill(min(arguments.prefill))  # compiles kernels and initialises libraries
        print(f"{'prompt':>13} {'first token':>20} {'tokens/s':>9}{note}")
    for length in arguments.prefill:
        result = bench.prefill(length)
        prefills.append(result)
        seconds, rate = result["time_to_first_token"], result["tokens_per_second"]
        scaled = "" if scale == 1 else f"{seconds * scale:12.3f} s"
        print(f"{length:13} {seconds:18.3f} s {rate:9.0f}{scaled}", flush=True)
        if bench.kernels:
            print_summary(result["profile"])
    print(json.dumps({**setting, "decode": decodes, "prefill": prefills}))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # the user can correct it
        raise SystemExit(f"bench/throughput: {error}") from None
