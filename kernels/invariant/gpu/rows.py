"""Norms and fp32 projections on a Hopper GPU, batch-invariant: the compiled kernels, without their fallbacks to torch."""

from functools import partial

import torch

from ...cuda import fp32_ops
from ...cuda import norm_and_cache as fused
from ...cuda.fp32_ops import MAX_NORM_WIDTH
from ...tile.quantize import rms_norm_quantize
from ...types import NewEntries


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Norm each row by one CTA, like norms that quantise."""
    return rms_norm_quantize(x, weight, eps)[1]


def _check(name: str, x: torch.Tensor) -> None:
    """Raise a ValueError where the kernels would fall back to torch."""
    if x.shape[1] > MAX_NORM_WIDTH:
        raise ValueError(
            f"{name} has {x.shape[1]} dims; expected at most {MAX_NORM_WIDTH} in deterministic mode on a GPU"
        )


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Norm each row by one warp."""
    _check("x", x)
    return fp32_ops.layer_norm(x, weight, bias, eps)


fp32_linear = partial(fp32_ops.fp32_linear, one_order=True)


def norm_and_cache(new: NewEntries) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    _check("keys", new.keys)
    return fused.norm_and_cache(new, one_order=True)
