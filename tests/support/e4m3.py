"""FP8 by hand: the 256 e4m3fn codes from their bits, rounding by search, scales by frexp. Shares nothing with torch's casts."""

import math
import struct

import numpy as np
import torch

GROUP = 128
FLOOR = np.float32(1e-4)  # the smallest amax that gives an activation's scale
NAN_CODE = 0x7F


def decode(code: int) -> float:
    """Value of one e4m3fn byte: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities, only s.1111.111 is NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


VALUES = np.array([decode(code) for code in range(256)])
_POSITIVE = VALUES[:NAN_CODE]  # ascending, 0 to 448


def encode(x: np.ndarray) -> np.ndarray:
    """The nearest codes: ties go to the even mantissa, values beyond 448 are clamped, NaN stays NaN."""
    x = np.asarray(x, dtype=np.float64)
    size = np.minimum(np.abs(x), 448.0)
    above = np.clip(np.searchsorted(_POSITIVE, size), 1, 126)
    below = above - 1
    up, down = _POSITIVE[above] - size, size - _POSITIVE[below]
    take_up = (up < down) | ((up == down) & (above % 2 == 0))
    codes = np.where(take_up, above, below)
    codes = np.where(np.isnan(x), NAN_CODE, codes)
    return (codes | (np.signbit(x) << 7)).astype(np.uint8)


def group_scale(amax: float, ue8m0: bool = True) -> np.float32:
    """amax / 448 in fp32; with ue8m0, the smallest power of two that is at least that."""
    scale = np.float32(amax) / np.float32(448)
    if not ue8m0:
        return scale
    mantissa, exponent = math.frexp(scale)
    return np.float32(math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent))


def quantize(x: np.ndarray, ue8m0: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Finite fp32 rows [T, D] -> codes uint8 [T, D], scales fp32 [T, ceil(D / 128)]."""
    rows, width = x.shape
    codes = np.empty((rows, width), np.uint8)
    scales = np.empty((rows, -(-width // GROUP)), np.float32)
    for row in range(rows):
        for group in range(scales.shape[1]):
            part = x[row, group * GROUP : (group + 1) * GROUP].astype(np.float32)
            scale = group_scale(max(np.abs(part).max(), FLOOR), ue8m0)
            scales[row, group] = scale
            codes[row, group * GROUP : (group + 1) * GROUP] = encode(part / scale)
    return codes, scales


def dequantize(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Codes [T, D] and scales [T, groups] -> float64 [T, D]."""
    return VALUES[codes] * np.repeat(scales.astype(np.float64), GROUP, axis=1)[:, : codes.shape[1]]


def codes_of(values: torch.Tensor) -> np.ndarray:
    """The bytes of a float8_e4m3fn tensor."""
    return values.view(torch.uint8).cpu().numpy()


def as_fp8(codes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(codes)).view(torch.float8_e4m3fn)


def bf16_bytes(value: float) -> bytes:
    """The two bytes of a value that bf16 represents exactly."""
    raw = struct.pack("<f", value)
    assert raw[:2] == b"\0\0", f"bf16 does not represent {value}"
    return raw[2:]
