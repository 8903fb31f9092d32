"""What the memory-bound kernels share: a group of 128 elements is 8 lanes, and a lane holds two pieces of 8, 64 elements apart.

So eight bf16 of each lane are one 16-byte load, and those of 8 lanes a whole 128-byte line. Tensors come flat, with the distance
of their rows (`pitch`). An `aligned` kernel takes distances in pieces, so that TileLang sees that its vectors are whole; for any
other shape elements are taken one by one, guarded by how many of them are `valid`.

All are launched programmatically: they let the next kernel start (`T.pdl_trigger`), and wait for the end of the one before
(`T.pdl_sync`) before they touch what it touches.
"""

from typing import Any

import tilelang.language as T
import torch

PIECE = 8  # neighbouring elements of a lane
LANES = 8  # that share a group and its scale
GROUP = 128
APART = 64  # from the first piece of a lane to the second
FLOOR_BITS = 0x38D1B717  # 1e-4, the smallest amax of a group, as fp32 bits
PASSES = {"tl.disable_safe_memory_legalize": True}  # bounds are checked here, once for a piece


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def flat(x: torch.Tensor) -> torch.Tensor:
    """The memory from the first to the last element of x [T, D], whatever lies between its rows."""
    return x.as_strided(((x.shape[0] - 1) * x.stride(0) + x.shape[1],), (1,))


def is_aligned(x: torch.Tensor, width: int) -> bool:
    """Whether every piece of x [T, D] is whole and starts at 16 bytes, also of segments of `width` columns."""
    return not (x.stride(0) % PIECE or x.data_ptr() % 16 or width % PIECE)


@T.macro
def load(values: Any, at: Any, x: Any, start: Any, valid: Any, aligned: bool) -> None:
    """A piece of x as fp32 into values[at:at + 8], zeros from `valid` on; `start` is in pieces if `aligned`, else in elements."""
    raw = T.alloc_local((PIECE,), x.dtype)
    for i in T.unroll(PIECE):
        raw[i] = 0
    if aligned:
        if valid > 0:
            for i in T.vectorized(PIECE):
                raw[i] = x[start * PIECE + i]
    else:
        for i in T.unroll(PIECE):
            if i < valid:
                raw[i] = x[start + i]
    for i in T.unroll(PIECE):
        values[at + i] = T.cast(raw[i], "float32")


@T.macro
def store(out: Any, start: Any, values: Any, at: Any, valid: Any, aligned: bool) -> None:
    """The reverse of `load`, cast to out's dtype."""
    raw = T.alloc_local((PIECE,), out.dtype)
    for i in T.vectorized(PIECE):  # converts in pairs
        raw[i] = T.cast(values[at + i], out.dtype)
    if aligned:
        if valid > 0:
            if out.dtype == "bfloat16":  # said outright: nvcc splits some of these stores into four
                T.stg128(out[start * PIECE], raw[T.Ramp(0, 1, PIECE)])
            else:
                for i in T.vectorized(PIECE):
                    out[start * PIECE + i] = raw[i]
    else:
        for i in T.unroll(PIECE):
            if i < valid:
                out[start + i] = raw[i]


@T.macro
def rounded(values: Any, at: Any, dtype: str) -> None:
    """Round a piece to `dtype` and keep it as fp32: what one operation gives and the next starts from."""
    if dtype != "float32":
        raw = T.alloc_local((PIECE,), dtype)
        for i in T.vectorized(PIECE):  # in pairs, which takes half of the instructions
            raw[i] = T.cast(values[at + i], dtype)
        for i in T.unroll(PIECE):
            values[at + i] = T.cast(raw[i], "float32")


@T.macro
def quantize(values: Any, at: Any, scale: Any, ue8m0: bool) -> None:
    """Divide both pieces of a lane, values[at:at + 16], by the scale of their group, bit for bit as the reference does.

    The maximum is taken of the bits, which orders magnitudes and lets infinities and NaN win. Rounding a scale up carries its
    mantissa into the exponent: an infinite one stays, NaN wraps to -0.0. The conversion to e4m3 that follows saturates at 448
    and keeps NaN.
    """
    top = T.alloc_var("int32")
    top = FLOOR_BITS
    for i in T.unroll(2 * PIECE):
        top = T.max(top, T.reinterpret(values[at + i], "int32") & 0x7FFFFFFF)
    for level in T.unroll(LANES.bit_length() - 1):
        top = T.max(top, T.shfl_xor(top, 1 << level))
    scale[0] = T.ieee_fdiv(T.reinterpret(top, "float32"), 448.0)
    if ue8m0:
        bits = T.alloc_var("int32")
        bits = T.reinterpret(scale[0], "int32")
        scale[0] = T.reinterpret((bits + 0x7FFFFF) & -0x800000, "float32")
        inverse = T.alloc_var("float32")
        inverse = T.ieee_fdiv(1.0, scale[0])  # of a power of two, so multiplying by it rounds as dividing does
        for i in T.unroll(2 * PIECE):
            values[at + i] = values[at + i] * inverse
    else:
        for i in T.unroll(2 * PIECE):
            values[at + i] = T.ieee_fdiv(values[at + i], scale[0])
