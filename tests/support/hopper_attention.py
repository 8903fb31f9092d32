"""Sparse attention over FP8 keys as the CUDA kernels compute it for more than 32 heads in deterministic mode, bit by bit.

Scores and outputs are chains of MMAs (hopper.py). Exponentials come from a unit of the hardware that approximates them, so they are
an argument: `exp2` with the bits of ex2.approx.ftz.f32 gives the kernels' outputs, any other one close outputs.
"""

import math
from collections.abc import Callable

import torch

from .hopper import BF16, add_slice, chain, fma

BLOCK, VALUES = 64, 512
LAZY, FLOOR = 8.0, -1e30  # a reference follows the maximum once this is higher by 8 in log2; the first one

Exp2 = Callable[[torch.Tensor], torch.Tensor]


def converted(records: torch.Tensor) -> torch.Tensor:
    """FP8 records uint8 [K, 656] -> keys bf16 [K, 576]: codes times their scales, rounded once, and the rotated dims."""
    codes = records[:, :VALUES].contiguous().view(torch.float8_e4m3fn).float()
    scales = records[:, VALUES : VALUES + 16].contiguous().view(torch.float32).repeat_interleave(128, 1)
    rope = records[:, VALUES + 16 :].contiguous().view(torch.bfloat16)
    return torch.cat([(codes * scales).bfloat16(), rope], 1)


def scores(q: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """q bf16 [H, 576], keys bf16 [K, 576] -> fp32 [H, K], each one chain of MMAs over the dims."""
    return chain(q, keys, BF16)


def attention(
    q: torch.Tensor, keys: torch.Tensor, valid: torch.Tensor, scale: float, exp2: Exp2, sink: torch.Tensor | None = None
) -> torch.Tensor:
    """One query: q bf16 [H, 576], keys bf16 [K, 576] in the order of its list, valid bool [K], sink fp32 [H] -> bf16 [H, 512].

    Blocks of 64 keys in order. An output is one chain of MMAs over all keys, rescaled where the exponentials' reference moves.
    """
    missing = -len(keys) % BLOCK
    keys = torch.nn.functional.pad(keys * valid[:, None], (0, 0, 0, missing))
    valid = torch.nn.functional.pad(valid, (0, missing))
    raw = scores(q, keys).masked_fill(~valid, -math.inf)
    scale_log2 = torch.tensor(scale * 1.4426950408889634, dtype=torch.float32, device=q.device)
    reference, top = raw.new_full((len(q),), FLOOR), raw.new_full((len(q),), -math.inf)
    out, sums = raw.new_zeros(len(q), VALUES), raw.new_zeros(2, len(q), 4)
    for number, first in enumerate(range(0, len(keys), BLOCK)):
        block = raw[:, first : first + BLOCK]
        top = torch.maximum(top, block.amax(1))
        candidate = top * scale_log2
        moved = torch.where(candidate > reference + LAZY, candidate, reference)
        factor = torch.where((moved != reference) & (reference != FLOOR), exp2(reference - moved), 1.0)
        reference = moved
        weights = exp2(fma(block, scale_log2.expand_as(block), -reference[:, None].expand_as(block)))
        out, sums = out * factor[:, None], sums * factor[:, None]
        sums[number % 2] += _added(weights)
        rounded = weights.bfloat16().float()
        for step in range(0, BLOCK, BF16.depth):
            some = slice(first + step, first + step + BF16.depth)
            out = add_slice(out, rounded[:, step : step + BF16.depth], keys[some, :VALUES].float().T, BF16)
    lanes = (sums[..., 0] + sums[..., 1]) + (sums[..., 2] + sums[..., 3])
    total = lanes[0] + lanes[1]  # of even and of odd blocks
    if sink is not None:
        total = total + exp2(sink * torch.tensor(1.4426950408889634, device=q.device) - reference)
    return torch.where((top == -math.inf)[:, None], 0.0, out * (1.0 / total)[:, None]).bfloat16()


def _added(weights: torch.Tensor) -> torch.Tensor:
    """Sums of the weights [H, 64] of a block by the four threads of a quad, which have two of every eight -> [H, 4]."""
    pairs = weights.view(len(weights), 8, 4, 2)
    total = torch.zeros_like(pairs[:, 0, :, 0])
    for eight in range(8):
        total = total + (pairs[:, eight, :, 0] + pairs[:, eight, :, 1])
    return total
