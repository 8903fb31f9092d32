"""Writes index keys to the paged cache, batch-invariant. kernels/reference writes latents so, too."""

from functools import partial

from ..reference import cache_write as reference
from .hadamard import rotate_quantize

write_index_cache = partial(reference.write_index_cache, rotate=rotate_quantize)
