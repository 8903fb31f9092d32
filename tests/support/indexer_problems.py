"""Queries, keys, weights, ranges and scales for the indexer, as arguments of its operations."""

import torch

FP8 = torch.float8_e4m3fn
Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def causal(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    ends = torch.arange(keys - rows + 1, keys + 1, dtype=torch.int32)
    return torch.zeros_like(ends), ends


def random(rows: int, keys: int, heads: int = 64) -> Problem:
    generator = torch.Generator().manual_seed(rows + keys)
    # As the quantiser's, whose largest of 128 is 448. Very small queries have wide bounds.
    values = (torch.randn(rows * heads + keys, 128, generator=generator) * 160).clamp_(-448, 448).to(FP8)
    q, k = values[: rows * heads].view(rows, heads, 128), values[rows * heads :]
    weights, scales = torch.randn(rows, heads, generator=generator), torch.rand(keys, generator=generator)
    return q, k, weights, *causal(rows, keys), scales


def with_scores(rows: int, scores: torch.Tensor) -> Problem:
    """Row t scores key s with scores[s] times 128 * 64 * (t + 1): powers of two and small numbers, so that no score is rounded."""
    q = torch.ones(rows, 64, 128).to(FP8)
    weights = (torch.arange(rows) % 3 + 1.0)[:, None].expand(rows, 64).contiguous()
    return q, torch.ones(len(scores), 128).to(FP8), weights, *causal(rows, len(scores)), scores.float()
