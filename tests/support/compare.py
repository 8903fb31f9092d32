"""Closeness as public kernel tests measure it: relative error, absolute error and cosine distance."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Tolerance:
    relative: float
    absolute: float
    cosine: float = 1.0  # distance 1 - 2 sum(ab) / sum(a^2 + b^2)


FP32 = Tolerance(2e-5, 2e-6, 1e-10)  # fp32 sums of up to a few thousand terms
# Logits of up to 20 have an fp32 error of 2e-6, which scales every probability: 1e-5 for values of a few units.
FP32_OUT = Tolerance(2e-5, 2e-5, 1e-10)
BF16_OUT = Tolerance(2.01 / 128, 8e-4, 7e-6)  # attention outputs; public FlashMLA tests, September 2025
LSE = Tolerance(2.01 / 65536, 1e-6)
LSE_FP8 = Tolerance(8.01 / 65536, 1e-6)


def cosine_distance(a: np.ndarray, b: np.ndarray) -> float:
    total = (a * a + b * b).sum()
    return float(1 - 2 * (a * b).sum() / total) if total else 0.0


def assert_close(actual: torch.Tensor, expected: np.ndarray, tolerance: Tolerance, what: str = "result") -> None:
    """Infinities must agree exactly, NaN is never allowed, the rest within `tolerance`."""
    got = actual.detach().double().cpu().numpy()
    assert got.shape == expected.shape, f"{what} has shape {got.shape}, expected {expected.shape}"
    assert not np.isnan(got).any(), f"{what} has {np.isnan(got).sum()} NaN"
    infinite = np.isinf(expected)
    assert (got[infinite] == expected[infinite]).all() and not np.isinf(got[~infinite]).any(), f"{what}: infinities"
    got, expected = got[~infinite], expected[~infinite]
    excess = np.abs(got - expected) - tolerance.relative * np.abs(expected) - tolerance.absolute
    if excess.size:
        worst = int(excess.argmax())
        assert excess[worst] <= 0, f"{what}: {got[worst]} for {expected[worst]}, and {(excess > 0).sum()} in all"
        distance = cosine_distance(got, expected)
        assert distance <= tolerance.cosine, f"{what}: cosine distance {distance:.2e} > {tolerance.cosine:.0e}"
