"""Time the whole model through its engine, on one GPU or on all ranks of a job: tables, then one line of JSON.

    export PYTHONSAFEPATH=1
    torchrun --standalone --nproc-per-node 8 scripts/benchmark_throughput.py               # the released model, synthetic weights
    torchrun --standalone --nproc-per-node 4 scripts/benchmark_throughput.py --layers 40   # as many as fit
    python scripts/benchmark_throughput.py --layers 10 --decode 1x4096 --prefill 4096 --kernels 12

Decode steps are the engine's own, greedy, scheduled, run as graphs and sampled by it; only what they attend to was not computed:
the caches are filled with random entries, and the engine is told that prompts of the wanted lengths lie in them, as it would know
of prompts that it had answered before. Contexts end at the length that is said. Time to first token is that of a prompt alone,
from its arrival to its first token on the host, every token computed. With fewer layers than the model has, what all of them would
take is said beside, by layers: an extrapolation, not a measurement.

`--kernels N` also lists where one step's time goes on rank 0, by the profiler. What a collective's kernels take includes waiting
for the slowest rank (benchmark_collectives.py times them alone), and kernels launched early overlap those before them.
"""

import argparse
import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.distributed.launch import this_job, world_size
from deepseek_v32.inference.distributed.worker import fill_caches_on_all_ranks
from deepseek_v32.inference.engine.pages import ROOT
from deepseek_v32.model.checkpoint.config_json import config_json, read_config
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import PAGE_SIZE

WARM_UP = 6  # steps before the clock starts: the first ones capture graphs
COMMUNICATION = ("nccl", "one_shot_all_reduce", "two_shot_all_reduce")  # in the names of kernels
PROFILED = 4  # decode steps


class Decode(NamedTuple):
    """`batch` sequences whose contexts end at `context` tokens."""

    batch: int
    context: int


DECODES = [Decode(batch, 4096) for batch in (1, 8, 64, 128)] + [Decode(batch, 32768) for batch in (1, 8, 32)]
PREFILLS = [4096, 32768, 120_000]


class Bench:
    """One engine and its cases."""

    def __init__(self, llm: LLM, steps: int) -> None:
        self.llm, self.engine, self.steps = llm, llm.engine, steps
        self.draw = random.Random(0)

    def fitting(self, case: Decode) -> Decode:
        """The case with as many sequences as there are pages for."""
        each = -(-case.context // PAGE_SIZE)
        most = min(self.llm.limits.page_count // each, self.llm.limits.max_sequences)
        return case if case.batch <= most else Decode(most, case.context)

    def decode(self, case: Decode, kernels: int = 0) -> dict[str, Any]:
        """Seconds of a step, and where they go if `kernels` are asked for."""
        extra = PROFILED if kernels else 0
        start = (case.context - self.steps - WARM_UP - extra) // PAGE_SIZE * PAGE_SIZE
        new = case.context - start
        if start <= 0:
            raise SystemExit(f"a context of {case.context} is too short for {self.steps} steps (--steps)")
        params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
        requests = [self.engine.add_request([*self.held_prompt(start), 7], params) for _ in range(case.batch)]
        while any(request.output_count < 2 for request in requests):  # all are admitted, and decode
            self.step()
        for _ in range(WARM_UP - 2):
            self.step()
        before = time.perf_counter()
        for _ in range(self.steps):
            assert self.step() == case.batch, "a step that was not all decodes"
        seconds = time.perf_counter() - before
        result: dict[str, Any] = {
            **case._asdict(),
            "step_ms": 1e3 * seconds / self.steps,
            "tokens_per_second": case.batch * self.steps / seconds,
        }
        if kernels:
            result["profile"] = self.profile(lambda: [self.step() for _ in range(PROFILED)], PROFILED, kernels)
        self.finish(request.id for request in requests)
        return result

    def prefill(self, length: int, kernels: int = 0) -> dict[str, Any]:
        """Seconds from a prompt's arrival to its first token."""
        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)

        def answer() -> None:
            [completion] = self.llm.generate([self.random_tokens(length)], params)
            assert completion.finish_reason == "length", completion.error

        before = time.perf_counter()
        answer()
        took = time.perf_counter() - before
        result: dict[str, Any] = {"prompt": length, "time_to_first_token": took, "tokens_per_second": length / took}
        if kernels:
            result["profile"] = self.profile(answer, 1, kernels)
        self.engine.pool.clear()
        return result

    def step(self) -> int:
        """Run one; how many tokens it brought."""
        deltas = self.engine.step()
        failed = [delta.completion.error for delta in deltas if delta.completion and delta.completion.error]
        if failed:
            raise SystemExit(f"a request failed: {failed[0]}")
        return sum(len(delta.token_ids) for delta in deltas)

    def finish(self, ids: Any) -> None:
        for id in ids:
            self.engine.abort(id)
        while self.engine.has_work:
            self.engine.step()
        self.engine.pool.clear()

    def random_tokens(self, count: int) -> list[int]:
        return self.draw.choices(range(3, self.llm.config.vocab_size), k=count)

    def held_prompt(self, length: int) -> list[int]:
        """A prompt whose pages the engine takes for computed: their random contents stand for it."""
        pool, tokens = self.engine.pool, self.random_tokens(length)
        pages, prefix_id = pool.allocate(length // PAGE_SIZE), ROOT
        for number, page in enumerate(pages):
            prefix_id = pool.register(page, prefix_id, tokens[number * PAGE_SIZE : (number + 1) * PAGE_SIZE])
        pool.release(pages)
        return tokens

    def profile(self, run: Callable[[], object], steps: int, count: int) -> dict[str, Any]:
        """Milliseconds of a step on rank 0's device: all kernels, those of collectives, and the `count` longest."""
        if self.llm.device.type != "cuda":
            return {}
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run()
            torch.cuda.synchronize()
        found = {}
        for event in profiler.key_averages():
            found[event.key] = (event.self_device_time_total / steps / 1e3, event.count / steps)
        kinds = {name: sum(took for key, (took, _) in found.items() if name in key) for name in COMMUNICATION}
        longest = sorted(found.items(), key=lambda item: -item[1][0])[:count]
        return {
            "kernels_ms": sum(took for took, _ in found.values()),
            "launches": sum(number for _, number in found.values()),
            "collectives_ms": {name: took for name, took in kinds.items() if took},
            "longest": [[round(took, 3), round(number, 1), key[:100]] for key, (took, number) in longest],
        }


def show(profiled: dict[str, Any]) -> None:
    if not profiled:
        return
    collectives = ", ".join(f"{name} {took:.2f}" for name, took in profiled["collectives_ms"].items()) or "none"
    print(
        f"    kernels {profiled['kernels_ms']:.2f} ms in {profiled['launches']:.0f} launches, of which collectives: {collectives}"
    )
    for took, number, name in profiled["longest"]:
        print(f"    {took:9.3f} ms {number:7.1f} x {name}")


def describe(llm: LLM, whole: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"device": "cpu"}
    if llm.device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        machine = {"device": torch.cuda.get_device_name(llm.device), "driver": driver, "nccl": nccl}
    return machine | {
        **{"torch": torch.__version__, "cuda": torch.version.cuda, "date": time.strftime("%Y-%m-%d")},
        "ranks": world_size(),
        "layers": llm.config.num_hidden_layers,
        "of_layers": whole,
        "precision": llm.precision,
        "decode_graphs": getattr(llm.engine.runner, "supports_async_scheduling", False),
        "pages": llm.limits.page_count,
    }


def decode_case(text: str) -> Decode:
    batch, _, context = text.partition("x")
    if not (batch.isdecimal() and context.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r}: BATCHxCONTEXT is wanted, as 8x4096")
    return Decode(int(batch), int(context))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a config.json; the released model's without it")
    parser.add_argument("--layers", type=int, help="so many of the model's layers; all without it")
    parser.add_argument("--decode", type=decode_case, nargs="*", default=DECODES, metavar="BATCHxCONTEXT")
    parser.add_argument("--prefill", type=int, nargs="*", default=PREFILLS, metavar="TOKENS", help="prompt lengths")
    parser.add_argument("--steps", type=int, default=24, help="decode steps that are timed")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="profile, and list the N longest kernels")
    parser.add_argument("--device", help="cpu or cuda; cuda where there is one")
    parser.add_argument("--precision", default="fp8")
    parser.add_argument("--page-count", type=int, help="pages of cache; what fits without it")
    parser.add_argument("--memory-fraction", type=float, default=0.92)
    parser.add_argument("--max-batch-tokens", type=int, help="tokens of a prefill step")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    config = ModelConfig() if arguments.model is None else read_config(arguments.model)
    longest = max([case.context for case in arguments.decode] + [length + 1 for length in arguments.prefill])
    started = time.perf_counter()
    llm = LLM(  # does not return on ranks other than 0
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
    )
    fill_caches_on_all_ranks(this_job(), llm.engine.runner, llm.model)
    here = describe(llm, config.num_hidden_layers)
    print(", ".join(f"{key} {value}" for key, value in here.items()))
    on_gpu = llm.device.type == "cuda"
    taken = f", {torch.cuda.memory_allocated(llm.device) / 2**30:.1f} GiB on rank 0" if on_gpu else ""
    print(f"weights and caches made in {time.perf_counter() - started:.0f} s{taken}", flush=True)
    bench = Bench(llm, arguments.steps)
    share = config.num_hidden_layers / llm.config.num_hidden_layers
    note = "" if share == 1 else f"   by layers, {config.num_hidden_layers} of them"
    decodes, prefills = [], []
    if arguments.decode:
        print(f"{'decode: batch':>13} {'context':>8} {'ms a step':>10} {'tokens/s':>9}{note}")
    for case in dict.fromkeys(bench.fitting(case) for case in arguments.decode):
        result = bench.decode(case, arguments.kernels)
        decodes.append(result)
        beside = "" if share == 1 else f"{result['tokens_per_second'] / share:14.1f}"
        largest = "" if case in arguments.decode else "  (the largest batch that fits)"
        print(
            f"{case.batch:13} {case.context:8} {result['step_ms']:10.3f} {result['tokens_per_second']:9.1f}{beside}{largest}",
            flush=True,
        )
        show(result.get("profile", {}))
    if arguments.prefill:
        bench.prefill(min(arguments.prefill))  # compiles kernels, sets up libraries
        print(f"{'prompt':>13} {'first token':>19} {'tokens/s':>9}{note}")
    for length in arguments.prefill:
        result = bench.prefill(length, arguments.kernels)
        prefills.append(result)
        beside = "" if share == 1 else f"{result['time_to_first_token'] * share:12.3f} s"
        print(
            f"{length:13} {result['time_to_first_token']:17.3f} s {result['tokens_per_second']:9.0f}{beside}",
            flush=True,
        )
        show(result.get("profile", {}))
    print(json.dumps({**here, "decode": decodes, "prefill": prefills}))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # what whoever started this can mend
        raise SystemExit(f"benchmark_throughput: {error}") from None
