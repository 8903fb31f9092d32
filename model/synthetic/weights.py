"""Random weights generated on the model's own device, to measure the speed of a model without its checkpoint."""

import hashlib

import torch

from ...kernels.quantize_weight import quantize_weight
from ..checkpoint.load import place
from ..config import FP8_BLOCK, ModelConfig, blocks
from ..parallel.plan import Plan, ShardSlice
from ..weight_map import TensorSpec, scale_parameter, tensor_specs

_ROWS = 4 * FP8_BLOCK  # generated at a time


@torch.no_grad()
def fill_synthetic(model: torch.nn.Module, plan: Plan, seed: int = 0) -> None:
    """Fill a rank's part of a model with random weights, scaled by `scaled`, without a copy through the host.

    Each block of 512 rows depends only on the seed, the tensor's name and the kind of device. So several ranks together hold the
    same model as one rank. The router's correction bias is 0: experts are chosen about evenly, as in a trained model.
    """
    targets: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
    config = plan.config
    tied = config.tie_word_embeddings
    for whole in tensor_specs(config):
        shard = plan.shard(whole)
        if shard is None or (tied and whole.parameter == "lm_head.weight"):
            continue
        spec = shard.spec
        assert spec.parameter is not None
        target = place(targets[spec.parameter], spec, spec.row, spec.shape)
        scales = None
        if target.dtype == torch.float8_e4m3fn:
            scales = place(targets[scale_parameter(spec.parameter)], spec, spec.scale_row, spec.scale_shape)
        _fill(target, scales, whole, shard.kept, config, seed)


def _fill(
    target: torch.Tensor,
    scales: torch.Tensor | None,
    whole: TensorSpec,
    kept: ShardSlice | None,
    config: ModelConfig,
    seed: int,
) -> None:
    """Fill a parameter with the slice `kept` of a tensor (None: all of it)."""
    rows = ShardSlice(0, 0, whole.shape[0]) if kept is None or kept.dim else kept
    for first in range(rows.start // _ROWS * _ROWS, rows.stop, _ROWS):
        chunk = _random_rows(whole, first, config, seed, target.device)
        start, stop = max(first, rows.start), min(first + _ROWS, rows.stop)
        chunk = chunk[start - first : stop - first]
        if kept is not None and kept.dim:
            chunk = chunk[:, kept.start : kept.stop]
        part = slice(start - rows.start, stop - rows.start)
        if scales is not None:
            chunk, scales[part.start // FP8_BLOCK : blocks(part.stop)] = quantize_weight(chunk, config.ue8m0_scales)
        target[part].copy_(chunk)


def _random_rows(spec: TensorSpec, first: int, config: ModelConfig, seed: int, device: torch.device) -> torch.Tensor:
    """Make fp32 values of up to 512 rows of a tensor, beginning with row `first`."""
    shape = (min(_ROWS, spec.shape[0] - first), *spec.shape[1:])
    values = torch.randn(shape, generator=generator(f"{seed}/{spec.name}/{first}", device), device=device)
    return values.zero_() if spec.name.endswith("correction_bias") else scaled(values, spec, config)


def generator(name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a generator that is seeded with a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def scaled(values: torch.Tensor, spec: TensorSpec, config: ModelConfig) -> torch.Tensor:
    """Scale standard normal values to the weights of one tensor.

    A variance of 1 / inputs keeps every projection's output O(1). Projections into the residual stream are also divided by
    sqrt(2 layers), so the stream stays O(1). Norm weights and biases differ from 1 and 0, so that tests notice a model that
    ignores them. The correction bias is as wide as the router's scores, so that it changes which experts are chosen.
    """
    if spec.name.endswith("bias"):
        return values * 0.2
    if len(spec.shape) == 1:
        return 1 + values * 0.1
    if spec.name.endswith("embed_tokens.weight") and not config.tie_word_embeddings:
        return values
    spread = spec.shape[1] ** -0.5
    if spec.name.endswith(("o_proj.weight", "down_proj.weight")):
        spread *= (2 * config.num_hidden_layers) ** -0.5
    return values * spread
