"""The norm of the compressed query and the writes to both caches, batch-invariant."""

import torch

from ..reference.norm_and_cache import in_parts
from ..types import NewEntries
from .cache_write import write_index_cache
from .linear import fp32_linear


def norm_and_cache(new: NewEntries) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    return in_parts(new, write_index_cache, fp32_linear)
