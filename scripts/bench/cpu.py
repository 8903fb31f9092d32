"""The engine's speed on a CPU and that of transformers, same checkpoint and number of threads: tables, then one line of JSON.

    python scripts/bench/cpu.py [--threads N] [--quick]

Rates are computed from medians of wall-clock times.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

from deepseek_v32.inference import LLM, SamplingParams

# About 100 M parameters, with the released model's head dimensions and an index_topk that is small enough to matter at 1K.
CONFIG: dict[str, Any] = {
    "vocab_size": 8192,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 512,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "index_n_heads": 16,
    "index_topk": 256,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
PREFILL_TOKENS = 2000
DECODE_CONTEXT = 2000
DSA_CONTEXTS = (1024, 2048, 4096, 8192, 16384)


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def random_prompt(length: int, seed: int) -> list[int]:
    tokens: list[int] = torch.randint(2, 8192, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return tokens


def decode_rate(llm: LLM, context: int, batch: int, new: int) -> float:
    """Generated tokens per second of the whole batch, once every prompt is in the cache."""
    prompts = [random_prompt(context, 1000 + i) for i in range(batch)]
    greedy = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    llm.generate(prompts, greedy)  # full pages stay cached, so the runs below compute only the last page, and decode
    rates = []
    for _ in range(3):
        completions = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=new, ignore_eos=True))
        slowest = max(c.timings.total - (c.timings.time_to_first_token or 0) for c in completions)
        rates.append(batch * (new - 1) / slowest)
    return statistics.median(rates)


def transformers_rates(model: transformers.PreTrainedModel, repeats: int, new: int) -> tuple[float, float]:
    """(prefill tokens per second, decode tokens per second) with the library's own cache."""
    prompt = torch.tensor([random_prompt(PREFILL_TOKENS, 1)])
    with torch.inference_mode():
        prefill = median_seconds(lambda: model(prompt, logits_to_keep=1), repeats)
        output = model(torch.tensor([random_prompt(DECODE_CONTEXT, 1000)]), use_cache=True, logits_to_keep=1)
        steps = []
        for _ in range(new):
            token = output.logits[:, -1:].argmax(-1)
            start = time.perf_counter()
            output = model(token, past_key_values=output.past_key_values, use_cache=True)
            steps.append(time.perf_counter() - start)
    return PREFILL_TOKENS / prefill, 1 / statistics.median(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="threads that PyTorch uses (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and only contexts up to 4K")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    repeats, new = (1, 16) if arguments.quick else (3, 64)
    console = Console()

    with tempfile.TemporaryDirectory() as directory:
        torch.manual_seed(0)
        oracle = transformers.DeepseekV32ForCausalLM(transformers.DeepseekV32Config(**CONFIG)).float().eval()
        parameters = sum(p.numel() for p in oracle.parameters())
        oracle.save_pretrained(directory)
        llm = LLM(Path(directory), device="cpu", precision="exact", max_model_len=20480)
        dense = LLM(
            Path(directory),
            device="cpu",
            precision="exact",
            max_model_len=20480,
            config_overrides={"index_topk": 32768},
        )

    machine = f"{platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}"
    console.print(f"{parameters / 1e6:.0f} M parameters, fp32, index_topk {CONFIG['index_topk']}; {machine}")
    results: dict[str, float] = {}

    one_token = SamplingParams(temperature=0, max_tokens=1)
    fresh = iter(range(10_000))  # seeds: a new prompt every time, so that no prefix is in the cache
    prefill = PREFILL_TOKENS / median_seconds(
        lambda: llm.generate([random_prompt(PREFILL_TOKENS, next(fresh))], one_token), repeats
    )
    decode = {batch: decode_rate(llm, DECODE_CONTEXT, batch, new) for batch in (1, 8)}
    transformers_prefill, transformers_decode = transformers_rates(oracle, repeats, new)
    table = Table("tokens per second", "this", "transformers", "ratio", title="the same checkpoint")
    table.add_row(
        f"prefill {PREFILL_TOKENS}",
        f"{prefill:.0f}",
        f"{transformers_prefill:.0f}",
        f"{prefill / transformers_prefill:.2f}",
    )
    table.add_row(
        f"decode at {DECODE_CONTEXT}",
        f"{decode[1]:.1f}",
        f"{transformers_decode:.1f}",
        f"{decode[1] / transformers_decode:.2f}",
    )
    table.add_row(
        f"decode at {DECODE_CONTEXT}, batch 8", f"{decode[8]:.1f}", "", f"{decode[8] / decode[1]:.2f} × batch 1"
    )
    console.print(table)
    results |= {
        "prefill": prefill,
        "prefill_transformers": transformers_prefill,
        "decode": decode[1],
        "decode_transformers": transformers_decode,
        "decode_batch_8": decode[8],
    }

    table = Table("context", "sparse", "relative to 1K", "dense", "relative to 1K", title="decode, tokens per second")
    contexts = DSA_CONTEXTS[:3] if arguments.quick else DSA_CONTEXTS
    curves = {
        name: [decode_rate(engine, context, 1, new) for context in contexts]
        for name, engine in (("sparse", llm), ("dense", dense))
    }
    for context, sparse_rate, dense_rate in zip(contexts, curves["sparse"], curves["dense"], strict=True):
        relative = (f"{sparse_rate / curves['sparse'][0]:.0%}", f"{dense_rate / curves['dense'][0]:.0%}")
        table.add_row(f"{context}", f"{sparse_rate:.1f}", relative[0], f"{dense_rate:.1f}", relative[1])
        results |= {f"decode_sparse_{context}": sparse_rate, f"decode_dense_{context}": dense_rate}
    console.print(table)
    print(json.dumps({"machine": machine, **{name: round(value, 2) for name, value in results.items()}}))


if __name__ == "__main__":
    main()
