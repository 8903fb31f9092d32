"""Rows of a trace: decoded from FP8, read back from the caches, and put in the order of positions."""

import sys
from collections.abc import Sequence
from importlib.metadata import version

import torch
import torch.nn.functional as F

from ...kernels.cache_write import gather_index_keys, gather_latents
from ...kernels.hadamard import hadamard_transform
from ...kernels.types import Quantized
from ...model.config import FP8_BLOCK, ModelConfig
from ...model.metadata import LayerCache

Part = tuple[torch.Tensor, torch.Tensor]  # positions int64 [n], rows [n, …]


def dequantized(values: Quantized) -> torch.Tensor:
    """FP8 values [..., D] with their scales -> fp32."""
    width = values.values.shape[-1]
    return values.values.float() * values.scales.repeat_interleave(FP8_BLOCK, -1)[..., :width]


def untransformed(x: torch.Tensor) -> torch.Tensor:
    """The Hadamard transform undone, fp32: it is its own inverse."""
    return hadamard_transform(x.float(), x.shape[-1] ** -0.5, backend="reference")


def ascending(ids: torch.Tensor) -> torch.Tensor:
    """Sets of ids int [R, K], -1 for none -> int32, each in ascending order, then -1."""
    last = torch.iinfo(torch.int32).max
    ordered = torch.where(ids < 0, last, ids).int().sort(-1).values
    return torch.where(ordered == last, -1, ordered)


def read_cache(cache: LayerCache, slots: torch.Tensor, config: ModelConfig) -> dict[str, torch.Tensor]:
    """The entries of some slots int64 [S]: as numbers, fp32, and as bytes."""
    entries = gather_latents(cache.latent, slots, config.kv_lora_rank, torch.float32, backend="reference")
    keys, scales = gather_index_keys(cache.index, slots, backend="reference")
    rows = cache.latent.view(-1, cache.latent.shape[-1])[slots].contiguous()
    record = keys.contiguous().view(torch.uint8)
    plain = keys.float()
    if scales is not None:
        plain = untransformed(plain * scales[:, None])
        record = torch.cat((record, scales[:, None].contiguous().view(torch.uint8)), 1)
    latent, rope = entries.split((config.kv_lora_rank, config.qk_rope_head_dim), 1)
    latents = {"latent": latent, "key_rope": rope, "latent_record": rows.view(torch.uint8)}
    return {**latents, "index_key": plain, "index_record": record}


def assemble(name: str, parts: Sequence[Part], length: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows by position -> [length, …], and which of them there are. Missing rows hold NaN, -1 or 255."""
    plain = name.rpartition(".")[2]
    fill: float = {"index_scores": -torch.inf, "selection": -1}.get(plain, torch.nan)
    width = (
        context if plain == "index_scores" else max(values.shape[1] if values.dim() > 1 else 0 for _, values in parts)
    )
    sample = parts[0][1]
    shape = (length, *((width,) if sample.dim() > 1 else ()), *sample.shape[2:])
    missing = fill if sample.is_floating_point() else 255 if sample.dtype == torch.uint8 else -1
    out, present = torch.full(shape, missing, dtype=sample.dtype), torch.zeros(length, dtype=torch.bool)
    for positions, values in parts:
        inside = positions < length
        rows = values[inside]
        if rows.dim() > 1 and rows.shape[1] != width:
            pad = F.pad(rows, (0, 0) * (rows.dim() - 2) + (0, max(width - rows.shape[1], 0)), value=missing)
            rows = pad[:, :width]
        out[positions[inside]] = rows
        present[positions[inside]] = True
    if plain == "selection":
        out = out[:, : max(int((out >= 0).sum(1).max()), 1)]
    return out, present


def router_order(stages: dict[str, torch.Tensor]) -> None:
    """Sort each token's experts, and their weights with them."""
    for name in [name for name in stages if name.endswith("router_choice")]:
        ordered, by = stages[name].sort(1)
        stages[name] = ordered.int()
        weights = name.replace("router_choice", "router_weights")
        stages[weights] = stages[weights].gather(1, by)


def versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"python": python, "torch": torch.__version__, "deepseek-v32": version("deepseek-v32")}
