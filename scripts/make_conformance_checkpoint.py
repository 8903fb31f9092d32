"""Make a checkpoint that the kernels of other engines take, whose answers `deepseek-v32 probe --checkpoint wide` knows.

    python scripts/make_conformance_checkpoint.py DIRECTORY                # FP8 with power-of-two scales, as the released one
    python scripts/make_conformance_checkpoint.py DIRECTORY --dtype bf16   # the same numbers in bf16
    python scripts/make_conformance_checkpoint.py DIRECTORY --dtype bf16 --narrow   # the demo itself, for --checkpoint demo
    vllm serve DIRECTORY …                                                 # or any other server
    deepseek-v32 probe --base-url http://127.0.0.1:8000/v1 --checkpoint wide

It is the demo, made wide: 64 attention and 64 index heads instead of 16, and 2,048 selected tokens instead of 128. Every head
occurs several times with different shares in the sum, which are powers of two, so FP8 codes are copied and nothing is rounded:
the result is the same bytes everywhere. What differs from the demo on purpose: rms_norm_eps is 1e-5, and the projections before
the norms of compressed queries, latents and index keys are small, so that a wrong epsilon there shows; and some index heads count
against a token, so that 2,048 of 2,700 tokens do not hold everything that attention looks for, and a wrong selection shows.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.kernels.quantize_weight import dequantize_weight

NARROW = 16  # attention heads and index heads of the demo
RMS_NORM_EPS, INDEX_TOPK = 1e-5, 2048
# Before their norms, these are divided by 2^SHIFT. Their mean square is then about 1e-5 to 1e-4.
SMALL = ("q_a_proj", "kv_a_proj_with_mqa", "indexer.wk")
SHIFT = 9
ROPE_BLOCK = 4  # of kv_a_proj_with_mqa's blocks of rows: the rotated part, which no norm follows
# Of each layer, one in this many index heads has the signs of its weights turned. In the last layer it is every second one: so many
# in the layers before made answers depend on how selections round.
TURNED = (4, 4, 2)

Tensors = dict[str, torch.Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="written into; weights already there are replaced")
    parser.add_argument("--dtype", choices=("fp8", "bf16"), default="fp8", help="of the weights (default fp8)")
    parser.add_argument("--heads", type=int, choices=(64, 128), default=64, help="attention heads (default 64)")
    parser.add_argument("--index-heads", type=int, choices=(32, 64), default=64, help="index heads (default 64)")
    parser.add_argument("--narrow", action="store_true", help="the demo as it is, for engines that do not take its FP8")
    arguments = parser.parse_args()
    try:
        if arguments.narrow:
            size = write_demo(arguments.directory, arguments.dtype)
        else:
            size = write_wide(arguments.directory, arguments.dtype, arguments.heads, arguments.index_heads)
    except OSError as error:
        print(f"make_conformance_checkpoint: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.directory}: {size / 1e6:.1f} MB in {arguments.dtype}")
    return 0


def write_wide(directory: Path, dtype: str = "fp8", heads: int = 64, index_heads: int = 64, demo: Path = DEMO) -> int:
    """Write the wide checkpoint. Returns the bytes of its weights."""
    config, tensors = read_twin(demo)
    config |= {"num_attention_heads": heads, "num_key_value_heads": heads, "index_n_heads": index_heads}
    return _write(directory, config, widened(tensors, heads // NARROW, index_heads // NARROW), dtype, demo)


def write_demo(directory: Path, dtype: str, demo: Path = DEMO) -> int:
    """Write the demo's own numbers. Returns the bytes of its weights."""
    return _write(directory, *_read(demo), dtype, demo)


def write_twin(directory: Path, demo: Path = DEMO) -> int:
    """Write the same function with the demo's 16 heads, which costs a CPU a quarter of the time."""
    return _write(directory, *read_twin(demo), "fp8", demo)


def read_twin(demo: Path) -> tuple[dict[str, Any], Tensors]:
    """The demo's config.json and tensors, with the differences that are not its width."""
    config, tensors = _read(demo)
    for key in ("num_attention_heads", "index_n_heads"):
        if config[key] != NARROW:
            raise SystemExit(f"{key} is {config[key]} in {demo}; expected {NARROW}")
    config |= {"rms_norm_eps": RMS_NORM_EPS, "index_topk": INDEX_TOPK}
    for name, tensor in tensors.items():
        if any(name.endswith(f"{part}.weight_scale_inv") for part in SMALL):
            shifted = tensor * 2.0**-SHIFT
            if "kv_a_proj" in name:
                shifted[ROPE_BLOCK:] = tensor[ROPE_BLOCK:]
            tensors[name] = shifted
    for layer, step in enumerate(TURNED):
        tensors[f"model.layers.{layer}.self_attn.indexer.weights_proj.weight"][1::step] *= -1
    return config, tensors


def _read(demo: Path) -> tuple[dict[str, Any], Tensors]:
    config = json.loads((demo / "config.json").read_text(encoding="utf-8"))
    with safe_open(demo / "model.safetensors", "pt") as file:
        return config, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def shares(copies: int) -> list[float]:
    """1/2, 1/4, … of a sum, the last two equal: copies of a head do not take each other's place unnoticed."""
    return [*(2.0**-n for n in range(1, copies)), 2.0 ** -(copies - 1)]


def widened(tensors: Tensors, copies: int, index_copies: int) -> Tensors:
    """All heads, `copies` times one after the other; and all index heads, whose scores stay the same numbers."""
    # A wider indexer divides by the root of its heads.
    index_shares = [share * index_copies**0.5 for share in shares(index_copies)]
    rules: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        **dict.fromkeys(_both("self_attn.q_b_proj", "self_attn.kv_b_proj"), lambda each: each.repeat(copies, 1)),
        **dict.fromkeys(_both("indexer.wq_b"), lambda each: each.repeat(index_copies, 1)),
        "self_attn.o_proj.weight": lambda each: each.repeat(1, copies),
        "self_attn.o_proj.weight_scale_inv": lambda each: torch.cat([each * share for share in shares(copies)], 1),
        "indexer.weights_proj.weight": lambda each: torch.cat([each * share for share in index_shares]),
    }
    wide = {}
    for name, tensor in tensors.items():
        rule = next((rule for end, rule in rules.items() if name.endswith(end)), None)
        wide[name] = tensor if rule is None else rule(tensor).contiguous()
    return wide


def _both(*names: str) -> list[str]:
    return [f"{name}.{part}" for name in names for part in ("weight", "weight_scale_inv")]


def in_bf16(tensors: Tensors) -> Tensors:
    """FP8 weights times their scales: four significant bits, so that bf16 holds them exactly."""
    plain = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float8_e4m3fn:
            plain[name] = dequantize_weight(tensor, tensors[f"{name}_scale_inv"], torch.bfloat16)
        elif not name.endswith("_scale_inv"):
            plain[name] = tensor
    return plain


def _write(directory: Path, config: dict[str, Any], tensors: Tensors, dtype: str, demo: Path) -> int:
    if dtype == "bf16":
        tensors = in_bf16(tensors)
        del config["quantization_config"]
    directory.mkdir(parents=True, exist_ok=True)
    for stale in directory.glob("model*.safetensors*"):
        stale.unlink()
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(demo / name, directory / name)
    weights = directory / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod((directory / "config.json").stat().st_mode)  # the library makes it readable by its owner only
    return sum(tensor.nbytes for tensor in tensors.values())


if __name__ == "__main__":
    sys.exit(main())
