"""Multi-head latent attention: its scale, its norms, and the FP8 entries of its cache."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from deepseek_v32.kernels.reference.quantize import FP8_MAX
from deepseek_v32.model.attention import MultiHeadLatentAttention
from deepseek_v32.model.block import Block

from .bug import ALL, EXACT, FP8, HTTP, TRACE, Bug
from .patching import replaced

QUANTIZE = "kernels.reference.cache_write.quantize_blocks"
BOTH = frozenset({TRACE, HTTP})


def with_scale(change: Any) -> AbstractContextManager[None]:
    """Attention with another softmax scale: change(scale, d^-0.5)."""

    def make(forward: Any) -> Any:
        def patched(self: MultiHeadLatentAttention, *arguments: Any) -> Any:
            kept = self.softmax_scale
            self.softmax_scale = change(kept, (self.nope + self.rope) ** -0.5)
            try:
                return forward(self, *arguments)
            finally:
                self.softmax_scale = kept

        return patched

    return replaced("model.attention.MultiHeadLatentAttention.forward", make)


def mscale_missing() -> AbstractContextManager[None]:
    return with_scale(lambda scale, plain: plain)


def mscale_twice() -> AbstractContextManager[None]:
    """The thread applies it a second time to cos and sin, so only to the rotated dims; here to all dims."""
    return with_scale(lambda scale, plain: scale * scale / plain)


def latent_norm_eps() -> AbstractContextManager[None]:
    """The epsilon of the residual stream's norms, for both compressed vectors."""

    def make(forward: Any) -> Any:
        def patched(self: Block, *arguments: Any) -> Any:
            norms = self.self_attn.q_a_layernorm, self.self_attn.kv_a_layernorm
            kept = norms[0].eps
            for norm in norms:
                norm.eps = self.input_layernorm.eps
            try:
                return forward(self, *arguments)
            finally:
                for norm in norms:
                    norm.eps = kept

        return patched

    return replaced("model.block.Block.forward", make)


def one_scale_per_tensor() -> AbstractContextManager[None]:
    """All latents of a step share the scale of the smallest, as after a calibration on other tensors."""

    def make(quantize: Any) -> Any:
        def per_tensor(x: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
            _, scales = quantize(x, ue8m0)
            scales = torch.full_like(scales, float(scales.min()) / 4)
            spread = scales.repeat_interleave(128, -1)[..., : x.shape[-1]]
            return (x / spread).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scales

        return per_tensor

    return replaced(QUANTIZE, make)


def with_written_scales(change: Any, quantised_with: Any) -> AbstractContextManager[None]:
    """Latents quantised with quantised_with(scales), stored with change(scales)."""

    def make(quantize: Any) -> Any:
        def patched(x: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
            _, exact = quantize(x, False)
            used = quantised_with(exact).repeat_interleave(128, -1)[..., : x.shape[-1]]
            return (x / used).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), change(exact)

        return patched

    return replaced(QUANTIZE, make)


def rounded_down() -> AbstractContextManager[None]:
    def down(scales: torch.Tensor) -> torch.Tensor:
        return torch.exp2(torch.floor(torch.log2(scales)))

    return with_written_scales(down, down)


def rounded_too_late() -> AbstractContextManager[None]:
    """The scale is rounded after the values were divided by it."""
    return with_written_scales(lambda scales: torch.exp2(torch.ceil(torch.log2(scales))), lambda scales: scales)


BUGS = (
    Bug("mscale-missing", BOTH, ALL, "attention_heads", mscale_missing),
    Bug("mscale-twice", BOTH, ALL, "attention_heads", mscale_twice),
    Bug("latent-norm-eps", BOTH, EXACT, "compressed_query", latent_norm_eps),
    Bug("latent-scale-per-tensor", BOTH, FP8, "latent", one_scale_per_tensor),
    Bug("latent-scale-rounded-down", BOTH, FP8, "latent", rounded_down),
    Bug("latent-scale-rounded-late", BOTH, FP8, "latent", rounded_too_late),
)
