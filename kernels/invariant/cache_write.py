"""Writes index keys to the paged cache, batch-invariant. kernels/reference writes latents so, too."""

from functools import partial

from ..reference.cache_write import by_rotation
from .hadamard import rotate_quantize

write_index_cache = partial(by_rotation, rotate_quantize)
