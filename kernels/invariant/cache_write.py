"""Writes index keys to the paged cache, batch-invariant. Latents need no other code than kernels/reference."""

from functools import partial

from ..reference import cache_write as reference
from .hadamard import rotate_quantize

write_index_cache = partial(reference.write_index_cache, rotate=rotate_quantize)
