"""Rows of scores of many shapes, and the positions that a selector has to find in them."""

import math
from collections.abc import Callable

import numpy as np
import torch

INF, NAN = math.inf, math.nan


def expected_positions(row: torch.Tensor, k: int) -> list[int]:
    """The positions of the k largest, ascending: numpy's stable sort of the values that are neither NaN nor -inf."""
    values = row.numpy()
    candidates = np.flatnonzero(values > -np.inf)
    return sorted(candidates[np.argsort(-values[candidates], kind="stable")][:k].tolist())


def normal(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def relu_sums(size: int) -> torch.Tensor:
    """Logits like the indexer's: weighted sums of ReLUs, with few different exponents."""
    generator = torch.Generator().manual_seed(size)
    weights = torch.rand(64, generator=generator)
    return 16 + torch.randn(size, 64, generator=generator).relu_() @ weights


def one_bucket(size: int) -> torch.Tensor:
    """Most values differ in their last bits only: 100,000 of them, in rows that long, share the first digit."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(1))
    values = 1 + order.float() * 2.0**-23
    values[order >= 100_000] = -values[order >= 100_000]
    return values


def with_specials(size: int) -> torch.Tensor:
    row = normal(size)
    for value, every in ((INF, 977), (NAN, 5), (-NAN, 7), (-INF, 3), (0.0, 11), (-0.0, 13)):
        row[::every] = value
    return row


def with_outliers(size: int) -> torch.Tensor:
    """The largest and the lowest fp32 number: their difference is none, and all others lie in the middle."""
    row = normal(size)
    row[size // 3], row[size // 2] = torch.finfo(torch.float32).max, torch.finfo(torch.float32).min
    return row


SHAPES: dict[str, Callable[[int], torch.Tensor]] = {
    "normal": normal,
    "sums of ReLUs": relu_sums,
    "one bucket": one_bucket,
    "ascending": lambda size: torch.arange(size).float(),
    "descending": lambda size: -torch.arange(size).float(),
    "all equal": lambda size: torch.full((size,), 3.0),
    "all zero, signs mixed": lambda size: torch.zeros(size) * normal(size),
    "all -inf": lambda size: torch.full((size,), -INF),
    "all NaN": lambda size: torch.full((size,), NAN),
    "few above many ties at zero": lambda size: (normal(size) - 2.5).relu_(),
    "mostly -inf": lambda size: torch.where(normal(size) > 2.5, normal(size, 1), -INF),
    "NaN and both infinities among numbers": with_specials,
    "one far above and one far below": with_outliers,
    "the best in one stretch": lambda size: torch.where(
        (torch.arange(size) - size // 3).abs() < 1200, 5 + normal(size), -1.0
    ),
    "periodic": lambda size: (torch.arange(size) % 16).float() + 1e-3 * normal(size),
}
