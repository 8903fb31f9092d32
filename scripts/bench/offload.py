"""How fast a model with offloaded experts is, next to what the path from its files to the device allows.

    python scripts/bench/offload.py --layers 2 --small                       # a small model on this machine's CPU, in a minute
    python scripts/bench/offload.py --layers 4 --directory /tmp/weights      # layers of the released dimensions, 11.4 GB each

Writes a checkpoint of random FP8 weights, with one dense layer and then `--layers` layers of experts, whose router chooses nearly
uniformly. Measures how fast experts are read without a model, then decoding of one sequence and prompts with several numbers of
slots, and compares the bits of all log-probabilities with the resident model's. A bound is the longer one of the resident model's
time and of the missed bytes at that rate. Ends in one JSON line.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.model.checkpoint.config_json import config_json
from deepseek_v32.model.checkpoint.safetensors import SINGLE
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.expert_slots import ExpertSlots
from deepseek_v32.model.transformer import Transformer
from deepseek_v32.model.weight_map import TensorSpec, tensor_specs

SMALL = {
    **{"hidden_size": 1024, "intermediate_size": 1024, "moe_intermediate_size": 512, "num_attention_heads": 8},
    **{"q_lora_rank": 256, "n_routed_experts": 64, "index_n_heads": 16, "index_topk": 256},
}
PATTERN = 1 << 26  # random bytes that are repeated, shifted by an odd number for each tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="layers with experts")
    parser.add_argument("--small", action="store_true", help="small layers instead of the released dimensions")
    parser.add_argument("--directory", type=Path, help="of the checkpoint, which stays; default: a temporary one")
    parser.add_argument("--precision", default="fp8")
    parser.add_argument(
        "--slots", type=float, nargs="+", default=(0.0, 0.1, 0.5, 1.0), help="shares of all experts; 0: the fewest"
    )
    parser.add_argument("--prompt", type=int, nargs="+", default=(8192,), help="tokens of a prompt, read in one step")
    parser.add_argument("--tokens", type=int, default=40, help="of a decode")
    parser.add_argument("--cold", action="store_true", help="also read experts that the page cache does not hold")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        directory = arguments.directory or Path(folder)
        config = make_config(arguments)
        write(directory, config)
        print(json.dumps(measure(directory, config, arguments)))


def make_config(arguments: argparse.Namespace) -> ModelConfig:
    sizes: dict[str, Any] = SMALL if arguments.small else {}
    return replace(
        ModelConfig(),
        vocab_size=8192,
        num_hidden_layers=1 + arguments.layers,
        first_k_dense_replace=1,
        num_nextn_predict_layers=0,
        **sizes,
    )


def write(directory: Path, config: ModelConfig) -> None:
    """Write the checkpoint, unless it is there: one file, in the order of `tensor_specs`."""
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "config.json").exists():
        return
    header: dict[str, Any] = {}
    wanted = (spec for spec in tensor_specs(config) if spec.required and not spec.mtp)
    tensors = [each for spec in wanted for each in stored(spec)]
    offset = 0
    for name, dtype, shape, _ in tensors:
        size = math.prod(shape) * {"F8_E4M3": 1, "BF16": 2, "F32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    codes = torch.randint(0, 256, (2 * PATTERN,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    codes[(codes & 0x7F) == 0x7F] = 0x38  # NaN
    data, shift = codes.numpy().data, 0
    with (directory / SINGLE).open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, dtype, shape, deviation in tensors:
            if dtype == "F8_E4M3":
                left, shift = math.prod(shape), (shift + 1_000_003) % PATTERN
                while left:
                    file.write(data[shift : shift + min(left, PATTERN)])
                    left -= min(left, PATTERN)
            elif name.endswith("_scale_inv"):
                file.write(torch.full(shape, deviation).numpy().tobytes())
            else:
                values = torch.ones(shape) if deviation == 1 else torch.randn(shape) * deviation
                file.write(values.bfloat16().view(torch.int16).numpy().tobytes())
    (directory / "config.json").write_text(json.dumps(config_json(config)))


def stored(spec: TensorSpec) -> list[tuple[str, str, tuple[int, ...], float]]:
    """(name, dtype, shape, standard deviation or scale) of a tensor and its scales."""
    if len(spec.shape) == 1:
        return [(spec.name, "BF16", spec.shape, 0.0 if "bias" in spec.name else 1)]
    if not spec.quantised:
        return [(spec.name, "BF16", spec.shape, spec.shape[1] ** -0.5)]
    scale = 2.0 ** round(math.log2(spec.shape[1] ** -0.5 / 100))  # random codes have a standard deviation of about 100
    return [(spec.name, "F8_E4M3", spec.shape, 0.0), (spec.scale_name, "F32", spec.scale_shape, scale)]


def measure(directory: Path, config: ModelConfig, arguments: argparse.Namespace) -> dict[str, Any]:
    every = arguments.layers * config.n_routed_experts
    longest = max(arguments.prompt)
    options: dict[str, Any] = {
        "precision": arguments.precision,
        "max_batch_tokens": longest,
        "max_sequences": 4,
        "max_model_len": longest + 64 + arguments.tokens,
        "page_count": 2 * (longest // 64 + 4),
        "reuse_pages": False,
    }
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    rows: list[dict[str, Any]] = []
    with LLM(directory, **options) as llm:
        resident, expected = times(llm, arguments)
    result["resident"] = resident
    print(f"resident: {resident}", flush=True)
    for share in arguments.slots:
        count = max(config.num_experts_per_tok, round(share * every))
        with LLM(directory, offload="experts", expert_slots=count, **options) as llm:
            assert isinstance(llm.model, Transformer) and llm.model.expert_slots is not None
            slots = llm.model.expert_slots
            if not rows:
                result |= {"expert_bytes": slots.slot_bytes} | rates(slots, config, directory, arguments.cold)
                print(json.dumps(result), flush=True)
            rate = result["warm_rate"]
            found, answers = times(llm, arguments, slots)
            print(f"{count} slots: {'the same' if answers == expected else 'OTHER'} bits", flush=True)
            for name, (seconds, missed) in found.items():
                bound = max(resident[name][0], missed * slots.slot_bytes / rate)
                row = {
                    "slots": count,
                    "what": name,
                    "s": seconds,
                    "missed": missed,
                    "bound": bound,
                    "ratio": seconds / bound,
                }
                rows.append(row)
                print(
                    "  ".join(
                        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in row.items()
                    ),
                    flush=True,
                )
    return result | {"rows": rows}


def times(
    llm: LLM, arguments: argparse.Namespace, slots: ExpertSlots | None = None
) -> tuple[dict[str, tuple[float, float]], list[Any]]:
    """Seconds and missed experts of a decode step at B=1 and of prompts, medians; and the log-probabilities of their answers."""
    found: dict[str, tuple[float, float]] = {}
    answers: list[Any] = []
    generator = torch.Generator().manual_seed(1)
    for length in arguments.prompt:
        samples = []
        for _ in range(4):
            prompt = torch.randint(8192, (length,), generator=generator).tolist()
            missed, begin = slots.read if slots else 0, time.perf_counter()
            [completion] = llm.generate(prompt, SamplingParams(temperature=0.0, max_tokens=1, logprobs=5))
            answers.append(completion.logprobs)
            samples.append((time.perf_counter() - begin, float(slots.read - missed if slots else 0)))
        print(f"  prompt of {length}: {samples}", flush=True)
        found[f"prompt of {length}"] = sorted(samples[1:])[1]
    # Last: experts have been checked, which only their first reads do.
    prompt = prompt[:64]
    missed, last, seconds = 0.0, 0.0, []
    params = SamplingParams(temperature=0.0, max_tokens=arguments.tokens, ignore_eos=True)
    for number, delta in enumerate(llm.stream(prompt, params)):
        answers.append(delta.token_ids)
        now = time.perf_counter()
        if number == 4:
            missed = slots.read if slots else 0
        if number > 4:
            seconds.append(now - last)
        last = now
    per_step = (slots.read - missed) / len(seconds) if slots else 0
    found["decode"] = statistics.median(seconds), per_step
    return found, answers


def rates(slots: ExpertSlots, config: ModelConfig, directory: Path, cold: bool) -> dict[str, float]:
    """Bytes a second of all experts read into slots, without a model: from the page cache, and from the disk."""
    count, found = slots.count, {}
    everything = torch.arange(config.n_routed_experts + 1).int()

    def rate() -> float:
        slots.allocate(min(config.n_routed_experts // 2, 128))
        begin = time.perf_counter()
        for layer in slots.layers:
            parts = slots.request(layer, everything, 1)
            for part in ("gate_up_proj", "down_proj"):
                for _ in parts(part):
                    pass
        return slots.most * slots.slot_bytes / (time.perf_counter() - begin)

    file = directory / SINGLE
    rate()  # the first reads, which check, are made in Python
    if cold:
        for name, direct in (("cold_rate", False), ("direct_rate", True)):
            handle = os.open(file, os.O_RDONLY | (os.O_DIRECT if direct else 0))
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            found[name] = direct_rate(handle, slots.most * slots.slot_bytes) if direct else rate()
            os.close(handle)
    found["warm_rate"] = max(rate() for _ in range(3))
    slots.allocate(count)
    return found


def direct_rate(handle: int, size: int) -> float:
    """Bytes a second that the disk gives to eight threads of direct reads from the end of the file."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    piece = 1 << 24
    last = os.fstat(handle).st_size // piece - 1

    def read(number: int) -> int:
        with mmap.mmap(-1, piece) as buffer:  # aligned, as direct reads need
            return os.preadv(handle, [buffer], (last - number) * piece)

    begin = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(read, range(min(size // piece, last))))
    return done / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
