"""Random checkpoints in the Hugging Face layout, for tests and for trying everything without the released weights."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch

from ...kernels.quantize import quantize_weight
from ..checkpoint.config_json import config_json
from ..checkpoint.safetensors import INDEX, SINGLE
from ..config import FP8_BLOCK, ModelConfig, YarnScaling
from ..weight_map import Piece, pieces

WeightDtype = Literal["bf16", "fp32", "fp8"]
_SHARD_LIMIT = 10**9  # bytes of one shard in memory, if the caller does not say how many there are to be

# Every ratio of the released model that matters is kept (heads of 128 + 64, groups, one dense layer first, YaRN), while the
# whole fits in a few MB. 16 index heads: with few, ReLU makes exact ties at zero common.
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
    """Write config.json and random weights; with MTP layers if the configuration counts any. Returns the bytes of weights.

    The same seed gives the same weights, up to rounding, in every dtype and sharding. `shards` None: one file if it is
    small. Raises ValueError if an argument is none of those that exist.
    """
    if dtype not in get_args(WeightDtype):
        raise ValueError(f"dtype is {dtype!r}; wanted one of {', '.join(get_args(WeightDtype))}")
    if shards is not None and shards < 1:
        raise ValueError(f"shards is {shards}; wanted at least 1")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = replace(config, weight_block=(FP8_BLOCK, FP8_BLOCK) if dtype == "fp8" else None)
    for stale in (*directory.glob("model*.safetensors"), directory / INDEX):
        stale.unlink(missing_ok=True)
    (directory / "config.json").write_text(json.dumps(config_json(config), indent=2) + "\n", encoding="utf-8")

    table = [piece for piece in pieces(config) if _is_written(piece, config)]
    sizes = [_bytes(piece, dtype) for piece in table]
    count = shards or max(-(-sum(sizes) // _SHARD_LIMIT), 1)
    groups = _split(table, sizes, min(count, len(table)))
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = SINGLE if shards is None and len(groups) == 1 else f"model-{number:05}-of-{len(groups):05}.safetensors"
        tensors = {name: tensor for piece in group for name, tensor in _tensors(piece, config, dtype, seed)}
        _save(tensors, directory / file)
        weight_map |= dict.fromkeys(tensors, file)
    if SINGLE not in weight_map.values():
        index = {"metadata": {"total_size": sum(sizes)}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return sum(sizes)


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(path.with_name("config.json").stat().st_mode)  # the library writes for the owner's eyes only


def _is_written(piece: Piece, config: ModelConfig) -> bool:
    if piece.name == "lm_head.weight" or piece.parameter == "lm_head.weight":
        return not config.tie_word_embeddings
    return piece.required or config.num_nextn_predict_layers > 0  # optional ones are MTP layers


def _stored_dtype(piece: Piece, dtype: WeightDtype) -> torch.dtype:
    """The released checkpoint's choice: FP8 where a piece may be, fp32 norms and correction biases, bf16 the rest."""
    if dtype == "fp32" or "norm" in piece.name or piece.name.endswith("bias"):
        return torch.float32
    return torch.float8_e4m3fn if dtype == "fp8" and piece.quantised else torch.bfloat16


def _bytes(piece: Piece, dtype: WeightDtype) -> int:
    stored = _stored_dtype(piece, dtype)
    scales = torch.Size(piece.scale_shape).numel() if stored == torch.float8_e4m3fn else 0
    return torch.Size(piece.shape).numel() * stored.itemsize + scales * torch.float32.itemsize


def _split(table: list[Piece], sizes: list[int], count: int) -> list[list[Piece]]:
    """`count` runs of the table, none empty, of about the same bytes."""
    groups: list[list[Piece]] = [[]]
    written, total = 0, sum(sizes)
    for index, (piece, size) in enumerate(zip(table, sizes, strict=True)):
        left = count - len(groups)
        full = written * count >= total * len(groups) or len(table) - index == left
        if groups[-1] and left and full:
            groups.append([])
        groups[-1].append(piece)
        written += size
    return groups


def _tensors(piece: Piece, config: ModelConfig, dtype: WeightDtype, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    stored = _stored_dtype(piece, dtype)
    weight = _draw(piece, config, seed)
    if stored != torch.float8_e4m3fn:
        yield piece.name, weight.to(stored)
        return
    values, scales = quantize_weight(weight, config.ue8m0_scales)
    yield piece.name, values
    yield piece.scale_name, scales


def _draw(piece: Piece, config: ModelConfig, seed: int) -> torch.Tensor:
    """fp32 values of one tensor, from its name and the seed alone."""
    digest = hashlib.sha256(f"{seed}/{piece.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return scaled(torch.randn(piece.shape, generator=generator), piece, config)


def scaled(values: torch.Tensor, piece: Piece, config: ModelConfig) -> torch.Tensor:
    """Standard normal values as the weights of one tensor.

    Variance 1 / inputs keeps every projection's output O(1). What writes to the residual stream is divided by
    sqrt(2 layers), so the stream stays O(1) too. Norm weights and biases differ from 1 and 0 so that a model which
    forgets one is found out, and the correction bias is as wide as the router's scores, so that it decides things.
    """
    if piece.name.endswith("bias"):
        return values * 0.2
    if len(piece.shape) == 1:
        return 1 + values * 0.1
    if piece.name.endswith("embed_tokens.weight") and not config.tie_word_embeddings:
        return values
    spread = piece.shape[1] ** -0.5
    if piece.name.endswith(("o_proj.weight", "down_proj.weight")):
        spread *= (2 * config.num_hidden_layers) ** -0.5
    return values * spread
