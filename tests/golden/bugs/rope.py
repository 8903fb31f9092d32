"""Rotary embedding: the wrong pairs, dims or frequencies."""

import math
from contextlib import AbstractContextManager
from typing import Any

import torch

from deepseek_v32.kernels.reference.rope import rotate_half_split

from .bug import ALL, HTTP, TRACE, Bug
from .patching import replaced

INDEX_ROPE = (
    "model.indexer.rotate_index",
    "kernels.reference.cache_write.rotate_index",
    "kernels.reference.hadamard.rotate_index",
)
MSCALE = 0.1 * math.log(4) + 1
MLA_ROPE = (
    "kernels.reference.cache_write.rotate_interleaved",
    "kernels.reference.kv_up_projection.rotate_interleaved",
)


def index_interleaved() -> AbstractContextManager[None]:
    return replaced(INDEX_ROPE, lambda rotate: lambda x, cos, sin, interleaved: rotate(x, cos, sin, not interleaved))


def index_dims_last() -> AbstractContextManager[None]:
    def make(rotate: Any) -> Any:
        def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
            width = x.shape[-1] - 2 * cos.shape[1]
            moved = torch.cat((x[..., width:], x[..., :width]), -1)
            rotated = rotate(moved, cos, sin, interleaved)
            return torch.cat((rotated[..., 2 * cos.shape[1] :], rotated[..., : 2 * cos.shape[1]]), -1)

        return turned

    return replaced(INDEX_ROPE, make)


def index_unrotated() -> AbstractContextManager[None]:
    return replaced(INDEX_ROPE, lambda _: lambda x, cos, sin, interleaved: x)


def mla_half_split() -> AbstractContextManager[None]:
    return replaced(MLA_ROPE, lambda _: rotate_half_split)


def mscale_on_rope() -> AbstractContextManager[None]:
    """cos and sin times YaRN's mscale (here that of a factor of 4), which the softmax scale has already."""

    def make(forward: Any) -> Any:
        def scaled(self: Any, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            cos, sin = forward(self, positions)
            return cos * MSCALE, sin * MSCALE

        return scaled

    return replaced("model.rope.RotaryEmbedding.forward", make)


def plain_frequencies() -> AbstractContextManager[None]:
    def make(_: Any) -> Any:
        def forward(self: Any, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            count = len(self.frequencies)
            plain = float(1 / self.frequencies[1]) ** -torch.arange(count, dtype=torch.float32)
            angles = positions.float()[:, None] * plain.to(positions.device)
            return angles.cos(), angles.sin()

        return forward

    return replaced("model.rope.RotaryEmbedding.forward", make)


BUGS = (
    Bug("index-rope-interleaved", frozenset({TRACE, HTTP}), ALL, "index_key", index_interleaved),
    Bug("index-rope-dims-last", frozenset({TRACE, HTTP}), ALL, "index_key", index_dims_last),
    Bug("index-rope-missing", frozenset({TRACE, HTTP}), ALL, "index_key",
        index_unrotated),
    Bug("mla-rope-half-split", frozenset({TRACE, HTTP}), ALL, "key_rope", mla_half_split),
    Bug("yarn-missing", frozenset({TRACE, HTTP}), ALL, "key_rope", plain_frequencies),
    Bug("mscale-on-rope", frozenset({TRACE}), ALL, "key_rope", mscale_on_rope),
)  # fmt: skip
