"""Rotary position embedding (RoPE) of the last axis, in fp32. cos and sin are [T, R/2] for x [T, ..., R]."""

import torch


def _broadcast(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return table.view(table.shape[0], *(1,) * (x.dim() - 2), table.shape[1])


def rotate_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x[2i], x[2i + 1]), as MLA does with queries and keys."""
    cos, sin = _broadcast(cos, x), _broadcast(sin, x)
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def rotate_half_split(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x[i], x[i + R/2]), as the released indexer does with queries and keys."""
    cos, sin = _broadcast(cos, x), _broadcast(sin, x)
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def rotate_index(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate the first R = 2 * cos.shape[1] dims of each of the indexer's heads; the others are unchanged."""
    width = 2 * cos.shape[1]
    rotate = rotate_interleaved if interleaved else rotate_half_split
    return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), -1)
