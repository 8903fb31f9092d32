"""Rotary embedding as complex multiplication, in float64."""

import math

import numpy as np


def rotate_interleaved(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate each pair (x[2i], x[2i + 1]) by angle i."""
    rotated = (x[..., 0::2] + 1j * x[..., 1::2]) * (cos + 1j * sin)
    return np.stack([rotated.real, rotated.imag], axis=-1).reshape(x.shape)


def rotate_half_split(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate each pair (x[i], x[i + D/2]) by angle i."""
    half = x.shape[-1] // 2
    rotated = (x[..., :half] + 1j * x[..., half:]) * (cos + 1j * sin)
    return np.concatenate([rotated.real, rotated.imag], axis=-1)


def yarn_frequencies(
    dims: int, theta: float, factor: float, original: int, beta_fast: float, beta_slow: float
) -> np.ndarray:
    """YaRN's angular frequencies, one dim at a time."""

    def correction(rotations: float) -> float:
        return dims * math.log(original / (2 * math.pi * rotations)) / (2 * math.log(theta))

    low = max(math.floor(correction(beta_fast)), 0)
    high = min(math.ceil(correction(beta_slow)), dims - 1)
    frequencies = []
    for i in range(dims // 2):
        ramp = min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
        frequencies.append(theta ** (-2 * i / dims) * (1 - ramp + ramp / factor))
    return np.array(frequencies)
