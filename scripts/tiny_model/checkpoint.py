"""Random checkpoints in the Hugging Face layout, for tests and for trials without the released weights."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch

from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.model.checkpoint.config_json import config_json
from deepseek_v32.model.checkpoint.safetensors import INDEX, SINGLE
from deepseek_v32.model.config import FP8_BLOCK, ModelConfig, YarnScaling
from deepseek_v32.model.synthetic.weights import generator, scaled
from deepseek_v32.model.weight_map import TensorSpec, tensor_specs

WeightDtype = Literal["bf16", "fp32", "fp8"]
_FILE_LIMIT = 10**9  # bytes of one file, which memory holds, if the caller does not give the number of files

# The released model's proportions (heads of 128 + 64, expert groups, a leading dense layer, YaRN) in a few MB. It has 16 index
# heads, because with fewer, ReLU often makes scores of exactly zero, which tie.
TINY = ModelConfig(
    vocab_size=1024,
    hidden_size=256,
    intermediate_size=512,
    moe_intermediate_size=128,
    num_hidden_layers=4,
    first_k_dense_replace=1,
    num_attention_heads=4,
    q_lora_rank=128,
    kv_lora_rank=128,
    qk_nope_head_dim=64,
    qk_rope_head_dim=32,
    v_head_dim=64,
    n_routed_experts=16,
    num_experts_per_tok=4,
    n_group=4,
    topk_group=2,
    index_n_heads=16,
    index_head_dim=128,
    index_topk=64,
    yarn=YarnScaling(4.0, 2048, mscale_all_dim=1.0),
    max_position_embeddings=8192,
    num_nextn_predict_layers=0,
    weight_block=None,
)


def write_checkpoint(
    directory: str | Path, config: ModelConfig, dtype: WeightDtype = "bf16", seed: int = 0, shards: int | None = None
) -> int:
    """Write config.json and random weights, with MTP layers if the configuration has any. Returns the bytes of weights.

    The same seed gives the same weights, up to rounding, in every dtype and number of files. shards: number of files; None: as
    many as keep each below a GB. Raises ValueError for an unknown dtype and for fewer than one file.
    """
    if dtype not in get_args(WeightDtype):
        raise ValueError(f"dtype is {dtype!r}; expected one of {', '.join(get_args(WeightDtype))}")
    if shards is not None and shards < 1:
        raise ValueError(f"shards is {shards}; expected at least 1")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = replace(config, weight_block=(FP8_BLOCK, FP8_BLOCK) if dtype == "fp8" else None)
    for stale in (*directory.glob("model*.safetensors"), directory / INDEX):
        stale.unlink(missing_ok=True)
    (directory / "config.json").write_text(json.dumps(config_json(config), indent=2) + "\n", encoding="utf-8")

    table = [spec for spec in tensor_specs(config) if _is_written(spec, config)]
    sizes = [_bytes(spec, dtype) for spec in table]
    count = shards or max(-(-sum(sizes) // _FILE_LIMIT), 1)
    groups = _split(table, sizes, min(count, len(table)))
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = SINGLE if shards is None and len(groups) == 1 else f"model-{number:05}-of-{len(groups):05}.safetensors"
        tensors = {name: tensor for spec in group for name, tensor in _tensors(spec, config, dtype, seed)}
        _save(tensors, directory / file)
        weight_map |= dict.fromkeys(tensors, file)
    if SINGLE not in weight_map.values():
        index = {"metadata": {"total_size": sum(sizes)}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return sum(sizes)


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(path.with_name("config.json").stat().st_mode)  # the library makes it readable by its owner only


def _is_written(spec: TensorSpec, config: ModelConfig) -> bool:
    if spec.name == "lm_head.weight" or spec.parameter == "lm_head.weight":
        return not config.tie_word_embeddings
    own = spec.required and not spec.mtp  # the other tensors belong to MTP layers
    return own or config.num_nextn_predict_layers > 0


def _stored_dtype(spec: TensorSpec, dtype: WeightDtype) -> torch.dtype:
    """Choose a dtype as in the released checkpoint: FP8 where allowed, fp32 for norms and correction biases, else bf16."""
    if dtype == "fp32" or "norm" in spec.name or spec.name.endswith("bias"):
        return torch.float32
    return torch.float8_e4m3fn if dtype == "fp8" and spec.quantised else torch.bfloat16


def _bytes(spec: TensorSpec, dtype: WeightDtype) -> int:
    stored = _stored_dtype(spec, dtype)
    scales = torch.Size(spec.scale_shape).numel() if stored == torch.float8_e4m3fn else 0
    return torch.Size(spec.shape).numel() * stored.itemsize + scales * torch.float32.itemsize


def _split(table: list[TensorSpec], sizes: list[int], count: int) -> list[list[TensorSpec]]:
    """Split the table, in order, into `count` non-empty groups of about equal bytes."""
    groups: list[list[TensorSpec]] = [[]]
    written, total = 0, sum(sizes)
    for index, (spec, size) in enumerate(zip(table, sizes, strict=True)):
        left = count - len(groups)
        full = written * count >= total * len(groups) or len(table) - index == left
        if groups[-1] and left and full:
            groups.append([])
        groups[-1].append(spec)
        written += size
    return groups


def _tensors(
    spec: TensorSpec, config: ModelConfig, dtype: WeightDtype, seed: int
) -> Iterator[tuple[str, torch.Tensor]]:
    stored = _stored_dtype(spec, dtype)
    values = torch.randn(spec.shape, generator=generator(f"{seed}/{spec.name}"))  # of the name and the seed only
    weight = scaled(values, spec, config)
    if stored != torch.float8_e4m3fn:
        yield spec.name, weight.to(stored)
        return
    values, scales = quantize_weight(weight, config.ue8m0_scales)
    yield spec.name, values
    yield spec.scale_name, scales
