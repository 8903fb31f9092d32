"""The parts that the memory-bound kernels share.

Eight lanes hold a group of 128 elements. A lane holds two pieces of 8 neighbouring elements, 64 elements apart, so that eight bf16
elements are one 16-byte load, and the loads of 8 lanes a whole 128-byte line. Tensors are passed flat, with the stride of their
rows (`pitch`). An `aligned` kernel takes strides in pieces, so that TileLang knows that vectors are whole. For other shapes
elements are loaded one by one, and `valid` says how many there are.

All kernels use programmatic dependent launch (PDL): they let the next kernel start (`T.pdl_trigger`), and wait until the previous
kernel has ended (`T.pdl_sync`) before they access memory that it may access.
"""

from typing import Any

import tilelang.language as T
import torch

from ..alignment import is_aligned

PIECE = 8  # neighbouring elements that a lane holds
LANES = 8  # lanes that hold a group
GROUP = 128  # elements that share a scale
WARP = 32
WARPS = 4  # of a block whose warps each handle a row of several groups
APART = 64  # distance of the two pieces of a lane
FLOOR_BITS = 0x38D1B717  # 1e-4, the smallest amax of a group, as fp32 bits
PASSES = {"tl.disable_safe_memory_legalize": True}  # bounds are checked by these macros, once per piece


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def flat(x: torch.Tensor) -> torch.Tensor:
    """Return the memory of x [T, D] from its first to its last element, including gaps between rows."""
    return x.view(-1) if x.is_contiguous() else x.as_strided(((x.shape[0] - 1) * x.stride(0) + x.shape[1],), (1,))


def in_pieces(x: torch.Tensor, width: int) -> bool:
    """Check that x [T, D], cut into segments of `width` columns, consists of whole pieces that start on 16-byte boundaries."""
    return is_aligned(x) and x.stride(0) % PIECE == 0 and width % PIECE == 0


@T.macro
def load(values: Any, at: Any, x: Any, start: Any, valid: Any, aligned: bool) -> None:
    """Load a piece of x as fp32 to values[at:at + 8]; zeros from `valid` on. `start` is in pieces if `aligned`, or in elements."""
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
    """Store a piece, values[at:at + 8], to out in its dtype; arguments as for `load`."""
    raw = T.alloc_local((PIECE,), out.dtype)
    for i in T.vectorized(PIECE):  # vectorised, so that two elements are converted at once
        raw[i] = T.cast(values[at + i], out.dtype)
    if aligned:
        if valid > 0:
            if out.dtype == "bfloat16":  # explicit: nvcc splits some of these stores into four
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
    """Round a piece to `dtype` and keep it as fp32, as if one operation stored it and the next one loaded it."""
    if dtype != "float32":
        raw = T.alloc_local((PIECE,), dtype)
        for i in T.vectorized(PIECE):  # vectorised, so that two elements are converted at once
            raw[i] = T.cast(values[at + i], dtype)
        for i in T.unroll(PIECE):
            values[at + i] = T.cast(raw[i], "float32")


@T.macro
def quantize(values: Any, at: Any, scale: Any, ue8m0: bool) -> None:
    """Divide both pieces of a lane, values[at:at + 16], by the scale of their group. The bits equal the reference's.

    The maximum is taken over the absolute values' bits, where infinity and NaN are the largest. To round a scale up, its mantissa
    is carried into the exponent, and NaN wraps to -0.0. Adding 0 * scale then makes the scale NaN for infinity and NaN, and with
    it all values of the group. The following conversion to e4m3 keeps NaN.
    """
    top = T.alloc_var("int32")
    top = FLOOR_BITS
    for i in T.unroll(2 * PIECE):
        top = T.max(top, T.reinterpret(values[at + i], "int32") & 0x7FFFFFFF)
    for level in T.unroll(LANES.bit_length() - 1):
        top = T.max(top, T.shfl_xor(top, 1 << level))
    quotient = T.alloc_var("float32")
    quotient = T.ieee_fdiv(T.reinterpret(top, "float32"), 448.0)
    if ue8m0:
        bits = T.alloc_var("int32")
        bits = T.reinterpret(quotient, "int32")
        scale[0] = T.ieee_fmaf(quotient, 0.0, T.reinterpret((bits + 0x7FFFFF) & -0x800000, "float32"))
        inverse = T.alloc_var("float32")
        # Exact for a power of two, so that multiplying gives the same bits as dividing.
        inverse = T.ieee_fdiv(1.0, scale[0])
        for i in T.unroll(2 * PIECE):
            values[at + i] = values[at + i] * inverse
    else:
        scale[0] = T.ieee_fmaf(quotient, 0.0, quotient)
        for i in T.unroll(2 * PIECE):
            values[at + i] = T.ieee_fdiv(values[at + i], scale[0])


def spans(width: int) -> int:
    """Return how many times a warp, four groups wide, covers a row."""
    return -(-width // (WARP // LANES * GROUP))


@T.macro
def column_of(span: Any, piece: Any, lane: Any) -> Any:
    return (span * (WARP // LANES) + lane // LANES) * GROUP + piece * APART + lane % LANES * PIECE


@T.macro
def begin(block: Any, lanes: int, rows: int) -> Any:
    """Wait until memory may be accessed -> this thread's lane, and its row; `lanes` threads have a row, and a block has `rows`."""
    tx = T.get_thread_binding()
    T.pdl_trigger()
    T.pdl_sync()
    return tx % lanes, block * rows + tx // lanes


@T.macro
def slot_of(slots: Any, row: Any, rows: Any, column: Any, stamps: Any, stamped: bool, lane: Any) -> Any:
    """Return the slot of a row, or 0 if there is no such row. If `stamped`, store the slot's stamp."""
    slot = T.alloc_var("int64")
    slot = 0
    if row < rows:
        slot = slots[row]
        if stamped and lane == 0:
            column[slot] = stamps[row]
    return slot
