"""The sum of a product's parts of K, in TileLang: one part after the other, rounded once."""

from typing import Any

import tilelang.language as T
import torch

from .factory import tile_kernel
from .lanes import dtype_name

BLOCK = 1024  # elements of a CTA


@tile_kernel((4, "bfloat16"), (2, "float32"))
def sum_of_parts(parts: int, out_dtype: str) -> Any:
    """x fp32 [parts, count] -> out [count]: x[0] + x[1] + ..."""
    count = T.dynamic("count")

    @T.prim_func
    def kernel(x: T.Tensor((parts, count), "float32"), out: T.Tensor((count,), out_dtype)):
        with T.Kernel(T.ceildiv(count, BLOCK), threads=128) as block:
            total = T.alloc_fragment((BLOCK,), "float32")
            for i in T.Parallel(BLOCK):
                total[i] = T.if_then_else(block * BLOCK + i < count, x[0, block * BLOCK + i], 0.0)
            for part in T.unroll(1, parts):
                for i in T.Parallel(BLOCK):
                    if block * BLOCK + i < count:
                        total[i] = total[i] + x[part, block * BLOCK + i]
            for i in T.Parallel(BLOCK):
                if block * BLOCK + i < count:
                    out[block * BLOCK + i] = total[i]

    return kernel


def sum_parts(x: torch.Tensor, out: torch.Tensor) -> None:
    """x fp32 [parts, T, N] -> out [T, N] in its dtype."""
    if out.numel():
        sum_of_parts(x.shape[0], dtype_name(out.dtype))(x.flatten(1), out.view(-1))
